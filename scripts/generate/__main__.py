"""Writes the committed files that come from the library's own records.

    python -m scripts.generate [--check] [NAME…]

    stubs       webnn_vk/**/*.pyi
    templates   shaders/templates.json: what each shader template is used with
    readme      the table of operators in README.md
    operators   docs/operators.md, with the counts of the last conformance run
                (docs/conformance.json: python -m scripts.generate.operator_table runs it)
    onnx        docs/onnx.md: where ONNX's operators and WebNN's differ, and what of ONNX's
                backend suite is beyond WebNN
    engine      docs/cpu-engine.md: what stays on NumPy
    drivers     docs/drivers.md: what each driver can do, with the last figures and counts
                (docs/drivers.json, docs/kompute-vectors.json: see scripts/generate/driver_table.py)
    chips       docs/devices.md: our kernels under six makers' compilers
                (docs/chips.json: see scripts/generate/chip_table.py)
    bounds      docs/performance.md: bounds of our kernels and peers' from their ISA
                (docs/bounds.json: see scripts/generate/bound_table.py)
    javascript  js/lib/operators.js, js/operators.d.ts: the builder's methods in JavaScript
    suite       docs/javascript.md: web-platform-tests in Node, by file
                (docs/javascript.json: see scripts/generate/suite_table.py)
    pictures    docs/pictures/*.svg: modules, the compiler's passes on a graph, the timeline

``--check`` writes nothing and fails when a file would change; a test does that.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.generate import (
    bound_table,
    chip_table,
    driver_table,
    engine_table,
    javascript,
    onnx_table,
    operator_table,
    pictures,
    readme_table,
    stubs,
    suite_table,
    template_table,
)
from tests.support.paths import ROOT

#: Each returns the files with the text that they should hold.
GENERATORS: dict[str, Callable[[], dict[Path, str]]] = {
    "stubs": stubs.files,
    "templates": template_table.files,
    "readme": readme_table.files,
    "operators": operator_table.files,
    "onnx": onnx_table.files,
    "engine": engine_table.files,
    "drivers": driver_table.files,
    "chips": chip_table.files,
    "bounds": bound_table.files,
    "javascript": javascript.files,
    "suite": suite_table.files,
    "pictures": pictures.files,
}


def stale(name: str) -> dict[Path, str]:
    """The files of a generator that hold something else, with what they should hold."""
    return {
        path: text
        for path, text in GENERATORS[name]().items()
        if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m scripts.generate", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    options = parser.parse_args(arguments)
    unknown = set(options.names) - set(GENERATORS)
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not one of {', '.join(GENERATORS)}")
    changed = False
    for name in options.names or GENERATORS:
        for path, text in stale(name).items():
            changed = True
            shown = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
            if options.check:
                print(f"{shown} is stale: python -m scripts.generate {name}")
            else:
                path.write_text(text, encoding="utf-8")
                print(f"{shown} written")
    return int(options.check and changed)


if __name__ == "__main__":
    sys.exit(main())

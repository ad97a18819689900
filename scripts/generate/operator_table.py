"""``docs/operators.md``: every operator by data type and device, from the records, the kernels and
the last conformance run. `scripts.generate` writes it.

    python -m scripts.generate.operator_table

runs the conformance suite on both devices and writes the counts, ``docs/conformance.json``, and the
page.
"""

from __future__ import annotations

import json
import sys
import warnings
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

import webnn_vk
from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Example
from tests.conformance.wpt import conformance, suite
from tests.support import special_values
from tests.support.paths import ROOT
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder, Settings
from webnn_vk.compiler.ops import OPERATORS, Operator
from webnn_vk.compiler.ops.record import Like
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.types.data_types import ALL_TYPES
from webnn_vk.driver.device_profile import DeviceProfile

DOCS = ROOT / "docs"
PAGE = DOCS / "operators.md"
COUNTS = DOCS / "conformance.json"
DEVICES = ("vulkan", "cpu")
TYPES = ("float16", "int8", "int16", "int64")


@cache
def profiles() -> dict[str, DeviceProfile]:
    """Meaning of the table's "V": every one of these devices has the kernels."""
    plain = stored_profile("llvmpipe")
    return {
        "native types": plain,
        "emulated types": plain.masked(TYPES),
        "small mobile GPU": stored_profile("adreno_minimum"),
    }


# -- what the kernels can do
def samples(name: str, data_type: str) -> list[Example]:
    """Some uses of the operator with a first operand of the data type, always the same."""
    found: list[Example] = []

    @settings(
        max_examples=4, derandomize=True, database=None, deadline=None,
        phases=(Phase.generate,), suppress_health_check=list(HealthCheck),
    )
    @given(examples(name, types={OPERATORS[name].operands[0].name: data_type}))
    def collect(example: Example) -> None:
        found.append(example)

    collect()
    return found


def on_vulkan(name: str) -> dict[str, bool]:
    """Whether every profile runs the operator on the device, by the first operand's type."""
    settings = Settings(device="cpu")
    able = {}
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        operator = OPERATORS[name]
        for data_type in operator.limit(operator.operands[0].name).types:
            builder = MLGraphBuilder(context)
            outputs = {}
            for i, example in enumerate(samples(name, data_type)):
                made, _ = example.add_to(builder, f"{i}.")
                outputs |= {f"{i}.{k}": operand for k, operand in enumerate(made)}
            graph = builder._graph(outputs)
            reports = [
                compile_program(graph, Target(profile, skip=("fold", "fuse")))[0].report
                for profile in profiles().values()
            ]
            able[data_type] = not any(report.count("cpu") for report in reports)
    return able


# -- conformance counts
@cache
def cases_by_operator() -> dict[str, int]:
    """How many cases of the suite use each operator."""
    counts = dict.fromkeys(sorted(OPERATORS), 0)
    for _, case in conformance.cases():
        for name in _operators(case):
            counts[name] += 1
    return counts


def _operators(case: dict[str, Any]) -> set[str]:
    if case.get("nonSpecDataType"):
        return set()
    return {suite.snake(step["name"]) for step in case["graph"]["operators"]}


def run_conformance() -> dict[str, dict[str, list[int]]]:
    """[passed, failed] by device and operator; a case counts for every operator in it."""
    counts: dict[str, dict[str, list[int]]] = {}
    for device in DEVICES:
        counts[device] = {name: [0, 0] for name in sorted(OPERATORS)}
        chosen = replace(Settings.from_environment(), device=device)
        with webnn_vk.ml.create_context(settings=chosen).result() as context:
            for file, case in conformance.cases():
                names = _operators(case)
                if names:
                    tally = conformance.Tally()
                    error = conformance.run(context, tally, file, case, "default")
                    for name in names:
                        counts[device][name][error is not None] += 1
    return counts


# -- the page
def page(counts: dict[str, dict[str, list[int]]]) -> str:
    """The Markdown text."""
    lines = [
        "# Operators",
        "",
        "<!-- Written by `python -m scripts.generate operators`; don't edit. -->",
        "",
        "**V** means that the operator runs on Vulkan, with native or emulated 8-, 16- and 64-bit "
        "types, and also on the stored profile of a small mobile GPU. **C** means that it runs on "
        "the CPU device. The columns are the data types of the first operand; the other operands "
        "are listed below. The last two columns count the conformance vectors of the "
        "web-platform-tests that use the operator, as passed / run, in the last run on each "
        "device.",
        "",
        f"| operator | {' | '.join(ALL_TYPES)} | Vulkan | CPU |",
        f"| --- |{' :-: |' * len(ALL_TYPES)} --: | --: |",
    ]
    for name in sorted(OPERATORS):
        able = on_vulkan(name)
        cells = []
        for data_type in ALL_TYPES:
            mark = "V C" if able.get(data_type) else "C" if data_type in able else ""
            cells.append(mark)
        for device in DEVICES:
            passed, failed = counts[device].get(name, (0, 0))
            cells.append(f"{passed} / {passed + failed}" if passed + failed else "–")
        lines.append(f"| `{name}` | {' | '.join(cells)} |")
    lines += ["", "## Operands", "", "| operator | operand | data types | rank |",
              "| --- | --- | --- | --- |"]
    for name in sorted(OPERATORS):
        lines += _operand_rows(OPERATORS[name])
    lines += ["", *special_values.section(sorted(OPERATORS))]
    return "\n".join([*lines, ""])


def _operand_rows(operator: Operator) -> list[str]:
    rows = []
    for i, (name, row) in enumerate(operator.limits.items()):
        low, high = operator.limit(name).rank
        rank = f"{low}" if low == high else f"{low} … {high}"
        if isinstance(row, Like):
            types = f"as `{row.operand}`"
        else:
            types = "all" if set(row.types) == set(ALL_TYPES) else ", ".join(row.types)
        first = f"`{operator.name}` {operator.section}" if i == 0 else ""
        rows.append(f"| {first} | `{name}` | {types} | {rank} |")
    return rows


def load_counts() -> dict[str, dict[str, list[int]]]:
    return json.loads(COUNTS.read_text(encoding="utf-8"))


def files() -> dict[Path, str]:
    return {PAGE: page(load_counts())}


def main() -> int:
    if not suite.PRESENT:
        print(f"the suite is not at {suite.SUITE}", file=sys.stderr)
        return 2
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        counts = run_conformance()
    rows = (
        f'  "{device}": {{\n'
        + ",\n".join(f'    "{name}": {json.dumps(pair)}' for name, pair in by_name.items())
        + "\n  }"
        for device, by_name in counts.items()
    )
    COUNTS.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")
    for path, text in files().items():
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

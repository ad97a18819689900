"""``webnn-vk graph``: the kernels of a model as a list or a picture, and a page with the graph
before and after each pass."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from webnn_vk.api.ml_graph import executable_of
from webnn_vk.compiler.program.compile import PASSES
from webnn_vk.profiler.pictures import PassPictures, Picture, of_program, page, svg
from webnn_vk.support.errors import nearest, sanitize

from . import ToolError
from .loaded_model import LoadedModel, Options, loaded
from .models import need_packages
from .output import emit, facts, table, writable, writing


def graph(
    options: Options, svg_file: Path | None, html_file: Path | None, name: str | None, *, fold: bool
) -> None:
    """Print the model's kernels in the order in which they run. Draw them, or the graph before and
    after the pass called ``name``, and write a page with all passes."""
    written = writable((svg_file, (".svg",)), (html_file, (".html", ".htm")))
    _check_pass(name)
    need_packages(options.model, *(("pictures",) if written else ()))
    with loaded(options, with_passes=True) as model:
        seen = model.passes
        kernels = of_program(executable_of(model.graph).program, "kernels")
        if svg_file is not None:
            model.bar.begin("drawing")
            pictures = (kernels,) if name is None else _around(seen, name, options.model)
            with writing(svg_file):
                svg_file.write_text(svg(*pictures, fold=fold), encoding="utf-8")
        if html_file is not None:
            model.bar.begin("drawing")
            pairs = [*seen.all(), (kernels, kernels)]
            text = page(f"{model.title} on {model.device}", model.report.summary, pairs)
            with writing(html_file):
                html_file.write_text(text, encoding="utf-8")
    _print(model, written)


def _check_pass(name: str | None) -> None:
    names = [*dict.fromkeys(p.name for p in PASSES), "kernels"]
    if name is not None and name not in names:
        raise ToolError(
            f"--pass {sanitize(name)}: there is no such pass{nearest(name, names)}; one of "
            f"{', '.join(sorted(names))}"
        )


def _around(seen: PassPictures, name: str, model: str) -> tuple[Picture, Picture]:
    try:
        before, after = seen.around(name)
    except KeyError:
        changed = ", ".join(seen.passes[1:]) or "none, since a saved graph is already compiled"
        raise ToolError(
            f"--pass {name}: it changed nothing in {model}; passes that did: {changed}"
        ) from None
    if name != "kernels":
        before, after = (replace(p, title=f"{when} {name}")
                         for when, p in (("before", before), ("after", after)))
    return before, after


def _print(model: LoadedModel, written: Sequence[Path]) -> None:
    report, passes = model.report, model.passes.passes
    if model.options.json:
        emit({
            "model": model.title, "device": model.device, "summary": report.summary,
            "folded": report.folded, "passes": passes,
            "setup": report.setup, "lines": report.lines,
            "written": [str(path) for path in written],
        })
        return
    facts([("Device", model.device), ("Model", f"{model.title}: {report.summary}")])
    if not report.lines and not report.setup:
        print("\nNothing runs: everything was computed at build time")
    else:
        _lines("Each run:", report.lines)
    if report.setup:
        _lines("Once, at load:", report.setup)
    if report.folded:
        print(f"\nComputed at build time: {len(report.folded)} operators")
    if passes[1:]:
        print(f"\nPasses that changed something: {', '.join(passes[1:])}")
    for path in written:
        print(f"Written   {path}")


def _lines(title: str, lines: Sequence[Any]) -> None:
    print(f"\n{title}")
    head = ("#", "operators", "device", "kernel", "variant", "MFLOP", "MB")
    table(head, [
        (number, sanitize(" + ".join(line.operators)), line.device, line.kernel, line.variant,
         f"{line.flops / 1e6:.3f}", f"{line.bytes / 1e6:.3f}")
        for number, line in enumerate(lines)
    ], right=("#", "MFLOP", "MB"))

"""``webnn-vk shader``: templates, the kernels of a model as GLSL and SPIR-V, own shaders."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Sequence

from webnn_vk.codegen import __main__ as generator
from webnn_vk.codegen import spirv
from webnn_vk.codegen.render import render, template_info, templates
from webnn_vk.support.errors import sanitize

from . import ToolError
from .kernels import Kernel, Source, kernels
from .output import emit, facts, table


def list_templates(as_json: bool) -> None:
    """Print the templates."""
    if as_json:
        generate("list", ["--json"])
        return
    table(("template", "what it does"), [
        (name, template_info(name).description) for name in templates()
    ])


def list_kernels(source: Source, device: str | None, chip: str | None, as_json: bool) -> None:
    """Print a graph's kernels; with a chip, compiled for it."""
    if chip is not None:
        from . import chips

        chips.show_all(chips.kernels(chips.graph_of(source), chip), chip, as_json)
        return
    found = kernels(source, device)
    if as_json:
        emit([kernel.data for kernel in found])
        return
    head = ("#", "operators", "kernel", "variant", "template", "groups")
    table(head, [
        (k.number, sanitize(" + ".join(k.operators)), k.step.kernel, k.step.variant,
         k.spec.template.removesuffix(".comp.j2"), "×".join(map(str, k.step.groups)))
        for k in found
    ], right=("#",))


def show(
    source: Source, device: str | None, chip: str | None, number: int, form: str, as_json: bool
) -> None:
    """Print a kernel of a graph: its specialisation and, with a chip, statistics of the compiled
    kernel; or its GLSL, SPIR-V or ISA, as in ``form``."""
    if form == "isa" and chip is None:
        raise ToolError("--form isa needs a --chip")
    if chip is None:
        found = kernels(source, device)
    else:
        from . import chips

        found = chips.kernels(chips.graph_of(source), chip)
    if number >= len(found):
        raise ToolError(f"--step {number}: the model has {len(found)} kernels, from 0 on")
    kernel = found[number]
    if chip is not None and form in ("spec", "isa"):
        if form == "spec" and not as_json:
            _specialisation(kernel)
            print()
        chips.show(kernel, chip, form == "isa", as_json)
        return
    try:
        text = "" if form == "spec" else \
            render(kernel.spec) if form == "glsl" else spirv.disassembled(kernel.module)
    except spirv.SpirvError as error:
        raise ToolError(str(error)) from None
    if as_json:
        emit({**kernel.data, "spec": kernel.spec.to_json(), form: text or None})
    elif form == "spec":
        _specialisation(kernel)
    else:
        print(text.rstrip("\n"))


def _specialisation(kernel: Kernel) -> None:
    spec, step = kernel.spec, kernel.step
    buffers = (f"{b.name} {b.data_type} {b.access}" + f" ×{b.width}" * (b.width > 1)
               for b in spec.buffers)
    facts([
        ("Kernel", f"{kernel.number}: {step.kernel} {step.variant}"),
        ("Computes", sanitize(" + ".join(kernel.operators))),
        ("Template", spec.template),
        ("Groups", " × ".join(map(str, step.groups))),
        ("Buffers", ", ".join(buffers)),
        ("Params", f"{spec.param_bytes} bytes, {spec.param_storage}: "
         + ", ".join(p.name for p in spec.params)),
        ("Features", ", ".join(sorted(spec.features)) or "none"),
        ("SPIR-V", f"{len(kernel.module)} bytes"),
    ])
    print()
    table(("constant", "value"), list(kernel.constants.items()), right=("value",))


def generate(command: str, arguments: Sequence[str]) -> None:
    """Run ``python -m webnn_vk.codegen``. ``ToolError`` where it fails, ValueError for wrong
    arguments."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            failed = generator.main([command, *arguments])
    except SystemExit:
        raise ValueError(told.getvalue().strip().rpartition("error: ")[2]) from None
    if failed:
        message, _, lines = told.getvalue().rstrip().removeprefix("error: ").partition("\n")
        raise ToolError(message, lines)

"""``webnn-vk shader``: templates, the kernels of a model as GLSL and SPIR-V, and one's own."""

from __future__ import annotations

import contextlib
import io
import shutil
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from webnn_vk.codegen import KernelSpec, spirv
from webnn_vk.codegen import __main__ as generator
from webnn_vk.codegen.describe import describe as described
from webnn_vk.codegen.render import render, template_info, templates

from ..errors import sanitize
from ..ml_graph import executable_of
from ..program import DispatchStep
from . import ToolError
from .devices import open_context
from .inputs import read_inputs
from .output import emit, facts, say, table, working
from .running import Options, open_as_given


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a model: its number, what it computes, its spec, the values of its
    specialisation constants by name, and its SPIR-V."""

    number: int
    operators: tuple[str, ...]
    step: DispatchStep
    constants: dict[str, int | float]
    module: bytes

    @property
    def spec(self) -> KernelSpec:
        """What the shader was made of."""
        return self.step.spec

    @property
    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "number": self.number, "operators": self.operators, "kernel": self.step.kernel,
            "variant": self.step.variant, "template": self.spec.template,
            "groups": self.step.groups, "constants": self.constants,
            "spirv_bytes": len(self.module),
        }


def kernels(options: Options) -> list[Kernel]:
    """The dispatches of the model, in their order. ``ToolError`` on the CPU device."""
    given = read_inputs(options.inputs)
    values = {g.name: g.array for g in given if g.name is not None and g.array is not None}
    with working("building the model"), open_context(options.device) as context:
        if not context.device_info.is_vulkan:
            raise ToolError("the CPU device has no kernels: --device vulkan takes a Vulkan device")
        executable = executable_of(open_as_given(options, context, values, given).graph)
        program = executable.program
        steps = [s for s in program.device_steps if isinstance(s, DispatchStep)]
        return [
            Kernel(number, program.origins[step.origin].operators, step, constants_of(step),
                   executable.modules[step.spec])
            for number, step in enumerate(steps)
        ]


def constants_of(step: DispatchStep) -> dict[str, int | float]:
    """The values of a dispatch's specialisation constants by name, those left as they are too."""
    given = dict(step.constants)
    values: dict[str, int | float] = {}
    for number, constant in enumerate(step.spec.all_constants):
        code = {"uint": "<I", "int": "<i", "float": "<f"}[constant.type]
        data = given.get(number)
        values[constant.name] = constant.default if data is None else struct.unpack(code, data)[0]
    return values


def listing(options: Options | None, as_json: bool) -> None:
    """Print the templates or, of a model, its kernels."""
    if options is not None:
        found = kernels(options)
        if as_json:
            emit([kernel.data for kernel in found])
            return
        head = ("#", "operators", "kernel", "variant", "template", "groups")
        table(head, [
            (k.number, sanitize(" + ".join(k.operators)), k.step.kernel, k.step.variant,
             k.spec.template.removesuffix(".comp.j2"), "×".join(map(str, k.step.groups)))
            for k in found
        ], right=("#",))
        return
    about = {name: template_info(name) for name in templates()}
    if as_json:
        emit([{"template": name, "description": info.description, "options": info.options}
              for name, info in about.items()])
        return
    table(("template", "what it does"), [
        (name, info.description) for name, info in about.items()
    ])


def show(options: Options, number: int, form: str) -> None:
    """Print a kernel of a model: how it is specialised, and as ``form`` says its GLSL or SPIR-V."""
    found = kernels(options)
    if number >= len(found):
        raise ToolError(f"--step {number}: the model has {len(found)} kernels, from 0 on")
    kernel = found[number]
    text = "" if form == "spec" else \
        render(kernel.spec) if form == "glsl" else disassembled(kernel.module)
    if options.json:
        emit({**kernel.data, "spec": kernel.spec.to_json(), form: text or None})
        return
    if form != "spec":
        say(text.rstrip("\n"))
        return
    spec, step = kernel.spec, kernel.step
    buffers = (f"{b.name} {b.data_type} {b.access}" + f" ×{b.width}" * (b.width > 1)
               for b in spec.buffers)
    facts([
        ("Kernel", f"{number}: {step.kernel} {step.variant}"),
        ("Computes", sanitize(" + ".join(kernel.operators))),
        ("Template", spec.template),
        ("Groups", " × ".join(map(str, step.groups))),
        ("Buffers", ", ".join(buffers)),
        ("Params", f"{spec.param_bytes} bytes, {spec.param_storage}: "
         + ", ".join(p.name for p in spec.params)),
        ("Features", ", ".join(sorted(spec.features)) or "none"),
        ("SPIR-V", f"{len(kernel.module)} bytes"),
    ])
    say()
    table(("constant", "value"), list(kernel.constants.items()), right=("value",))


def disassembled(module: bytes) -> str:
    """SPIR-V as text: by spirv-dis, else as our own listing."""
    program = shutil.which("spirv-dis")
    if program is None:
        return spirv.listing(module)
    done = subprocess.run([program, "--no-color", "-"], input=module, capture_output=True)
    if done.returncode:
        raise ToolError(f"spirv-dis: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def describe(template: str) -> None:
    """Print what a template wants, and a command that compiles it."""
    try:
        say(described(template))
    except ValueError as error:
        raise ToolError(str(error)) from None


def generate(command: str, arguments: Sequence[str]) -> None:
    """``python -m webnn_vk.codegen``. ``ToolError`` where something fails, ValueError for wrong
    arguments."""
    told = io.StringIO()
    try:
        with contextlib.redirect_stderr(told):
            failed = generator.main([command, *arguments])
    except SystemExit:
        raise ValueError(told.getvalue().strip().rpartition("error: ")[2]) from None
    if failed:
        raise ToolError(told.getvalue().strip().removeprefix("error: "))

"""The kernels of a model or of one operator, planned for a device or for a chip that is not in this
machine."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

import numpy as np

from webnn_vk.api.ml_graph import executable_of
from webnn_vk.codegen import KernelSpec
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.program import DispatchStep, Program
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import DOMException, nearest

from . import ToolError
from .devices import open_context
from .loaded_model import Options, open_as_given
from .output import working

if TYPE_CHECKING:
    from webnn_vk.api.context import MLContext
    from webnn_vk.api.ml_graph import MLGraph

#: Makes the graph on a context.
Source = Callable[["MLContext"], "MLGraph"]


@dataclass(frozen=True)
class Kernel:
    """One dispatch of a graph: its number, the operators that it computes, its step, the values of
    its specialisation constants by name, and its SPIR-V."""

    number: int
    operators: tuple[str, ...]
    step: DispatchStep
    constants: dict[str, int | float]
    module: bytes

    @property
    def spec(self) -> KernelSpec:
        """The spec of its shader."""
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


@dataclass(frozen=True)
class OperatorCall:
    """A call of an operator: ``shapes`` of the operands by parameter name, of which those in
    ``constant`` are constants; ``options`` are its other arguments."""

    operator: str
    shapes: Mapping[str, tuple[int, ...]]
    data_type: str = "float32"
    constant: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)


def of_model(options: Options) -> Source:
    """The graph of a model."""
    return lambda context: open_as_given(options, context).graph


def of_operator(call: OperatorCall) -> Source:
    """A graph of one operator. ``ToolError`` for an unknown operator; the returned function raises
    it where the operator refuses its arguments."""
    if call.operator not in OPERATORS or not hasattr(_builder(), call.operator):
        raise ToolError(f"no operator is called {call.operator}{nearest(call.operator, OPERATORS)}")
    if unknown := sorted(set(call.constant) - set(call.shapes)):
        raise ToolError(f"--constant {unknown[0]}: no --shape names it")

    def build(context: MLContext) -> MLGraph:
        builder = _builder()(context)
        try:
            operands = {}
            for name, shape in call.shapes.items():
                descriptor: Any = {"data_type": call.data_type, "shape": shape}
                operands[name] = (
                    # The choice of a kernel does not depend on the values of weights.
                    builder.constant(descriptor, np.ones(shape, call.data_type))
                    if name in call.constant else builder.input(name, descriptor)
                )
            result = getattr(builder, call.operator)(**operands, **call.options)
            outputs = result if isinstance(result, (list, tuple)) else [result]
            named = {f"output{n}": operand for n, operand in enumerate(outputs)}
            graph: MLGraph = builder.build(named).result()
        except (TypeError, ValueError, DOMException) as error:
            raise ToolError(str(error)) from None
        return graph

    return build


def _builder() -> Any:
    from webnn_vk.api.builder import MLGraphBuilder

    return MLGraphBuilder


def kernels(source: Source, device: str | None) -> list[Kernel]:
    """The dispatches of a graph on a device, in order. ``ToolError`` on the CPU device."""
    with working("building the graph"), open_context(device) as context:
        if not context.device_info.is_vulkan:
            raise ToolError("the CPU device has no kernels: --device vulkan takes a Vulkan device, "
                            "--chip NAVI21 plans them for a chip")
        executable = executable_of(source(context))
        return of_program(executable.program, executable.modules)


def of_program(program: Program, modules: Mapping[KernelSpec, bytes]) -> list[Kernel]:
    """The dispatches of a program in order."""
    steps = program.dispatches_of_a_run
    return [
        Kernel(number, program.origins[step.origin].operators, step, constants_of(step),
               modules[step.spec])
        for number, step in enumerate(steps)
    ]


def constants_of(step: DispatchStep) -> dict[str, int | float]:
    """The values of a dispatch's specialisation constants by name, defaults included."""
    given = dict(step.constants)
    values: dict[str, int | float] = {}
    for number, constant in enumerate(step.spec.all_constants):
        code = {"uint": "<I", "int": "<i", "float": "<f"}[constant.type]
        data = given.get(number)
        values[constant.name] = constant.default if data is None else struct.unpack(code, data)[0]
    return values

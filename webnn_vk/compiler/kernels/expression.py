"""Element-wise operators as GLSL: statements, parameters and their values.

Shared by the element-wise kernel and by the epilogues of other kernels. Text comes from operator
records only; numbers are parameters, so that their values never change the SPIR-V.
"""

from __future__ import annotations

import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from webnn_vk.codegen.spec import Buffer, Param
from webnn_vk.support.integers import ceil_divide

from ..ops import Operator
from ..ops.lowering import Elementwise
from ..types.access import Access
from ..types.data_types import DATA_TYPES, MLOperandDescriptor, cast_number
from .node import Step

_PARAM_TYPES = {"f": "float", "i": "int", "u": "uint"}
_ROUNDED = {
    "float16": "w_half_to_float(w_float_to_half({}))",
    "int8": "w_wrap_int8({})",
    "uint8": "w_wrap_uint8({})",
    "bits16": "({} & 65535u)",
}


def rounded(text: str, data_type: str) -> str:
    """GLSL for the value rounded to the data type, as if it had been stored and loaded again, so
    that a fused chain gives what its operators give one by one."""
    return _ROUNDED.get(data_type, "{}").format(text)


# Of these there are short forms, exact enough for results that are rounded to float16 at once.
_SHORT = re.compile(r"\bw_(div|reciprocal|sqrt|exp|sigmoid|tanh|erf|gelu)\(")


def lowering(operator: Operator) -> Elementwise:
    """The operator's element-wise lowering."""
    assert isinstance(operator.lowering, Elementwise), operator
    return operator.lowering


#: GLSL for a value, and its descriptor or the access that describes it.
Named = tuple[str, Any]


class Chain:
    """Statements ``t0 = …; t1 = …;`` of operators applied in turn, one element at a time."""

    def __init__(self, prefix: str = "p") -> None:
        self._prefix = prefix  # of the names of numbers
        self.params: list[Param] = []
        self.values: dict[str, Any] = {}
        self.flops = 0
        self._statements: list[tuple[str, str]] = []

    def start(self, text: str, data_type: str) -> str:
        """Begin with an expression computed elsewhere: it becomes the first statement, whose
        variable is returned."""
        self._statements.append((data_type, text))
        return f"t{len(self._statements) - 1}"

    def apply(
        self,
        operator: Operator,
        operands: Mapping[str, Named],
        arguments: Mapping[str, Any],
        output: MLOperandDescriptor,
    ) -> str:
        """Add a statement; ``operands`` gives each present operand's GLSL name and descriptor.

        Returns the variable that holds the result.
        """
        kind = lowering(operator)
        expression = kind.expression
        if kind.variants is not None:
            types = {name: descriptor for name, (_, descriptor) in operands.items()}
            expression = kind.variants(types, output, arguments)
        if output.data_type == "float16":
            expression = _SHORT.sub(r"w_half_\1(", expression)
        texts = {name: text for name, (text, _) in operands.items()}
        like, descriptor = next(iter(operands.values()))
        for name in _fields(expression):
            if name not in texts:
                texts[name] = self._number(arguments[name], descriptor.data_type, like)
        self._statements.append((output.data_type, expression.format(**texts)))
        self.flops += kind.flops * output.size
        return f"t{len(self._statements) - 1}"

    def follow(
        self, came_out: list[Named], steps: Sequence[Step], read: Callable[[Access], Named],
        one_order: bool = False,
    ) -> list[Named]:
        """Add a statement for each step. ``came_out``: the result before the first, to which those
        of the steps are appended; it is returned. ``read`` names what an access reads.
        ``one_order``: operands that commute are exchanged where that leaves fewer kernels, since
        each is compiled by itself."""
        for step in steps:
            # Declaration order decides which operand a number takes its type from.
            order = [p.name for p in step.operator.operands if p.name in step.operands]
            operands = {
                name: read(access) if isinstance(access, Access)
                else came_out[-1 if access is None else access]
                for name, access in ((name, step.operands[name]) for name in order)
            }
            commutes = one_order and lowering(step.operator).commutes
            if commutes and step.operands[order[0]] is not None:
                first, second = order
                operands = {first: operands[second], second: operands[first]}
            text = self.apply(step.operator, operands, step.arguments, step.output)
            came_out.append((text, step.output))
        return came_out

    def _number(self, value: int | float, data_type: str, like: str) -> str:
        name = f"{self._prefix}{len(self.params)}"
        value = cast_number(value, data_type)
        dtype = DATA_TYPES[data_type]
        if dtype.size < 8:
            self.params.append(Param(name, _PARAM_TYPES[dtype.kind]))
            self.values[name] = value
            return f"P.{name}"
        self.params.append(Param(name, "uint", 2))
        bits = int(value) & (2**64 - 1)
        self.values[name] = (bits & 0xFFFFFFFF, bits >> 32)
        return f"w_from_bits({like}, P.{name}[0], P.{name}[1])"

    @property
    def statements(self) -> tuple[tuple[str, str], ...]:
        """(data type, expression) of t0, t1, …; all but the last rounded to their data type."""
        inner = tuple((t, rounded(text, t)) for t, text in self._statements[:-1])
        return inner + tuple(self._statements[-1:])

    @property
    def data_types(self) -> set[str]:
        """The data types of the values computed."""
        return {t for t, _ in self._statements}

    @property
    def text(self) -> str:
        """All expressions as one text, in which to look for functions used."""
        return " ".join(text for _, text in self._statements)


def _fields(expression: str) -> list[str]:
    names = (name for _, name, _, _ in string.Formatter().parse(expression) if name)
    return list(dict.fromkeys(names))


def reciprocal(divisor: int) -> int:
    """The multiplier by which ``divide`` of lib/divide.glsl.j2 divides by ``divisor``. For 1, which
    has none, it is 0."""
    return ceil_divide(2**32, divisor) if divisor > 1 else 0


def needs_int64(buffers: Iterable[Buffer], chain: Chain) -> bool:
    """Whether 64-bit integers occur in a kernel with these buffers and statements."""
    types = {b.data_type for b in buffers} | chain.data_types
    return any(DATA_TYPES[t].size == 8 for t in types) or "w_to_i64" in chain.text


#: With these a device's own conversions between float16 and float32 are exact, or rounded to
#: nearest even, denormals included.
HALF_CONVERSIONS = frozenset({
    "float16_arithmetic", "denorm_preserve_f16", "nan_preserve_f16", "rounding_rte_f16"
})
# Devices that have these have 16-bit storage too: the archive has no other combination.
_HALF_DEVICES = HALF_CONVERSIONS | {"float16"}


def used_features(
    available: frozenset[str], buffers: Iterable[Buffer], int64: bool = False
) -> frozenset[str]:
    """The part of a device's features that matters to a kernel with these buffers."""
    buffers = tuple(buffers)
    wanted = {"int64" for b in buffers if DATA_TYPES[b.data_type].size == 8}
    # Sub-word buffers that are four elements wide lie in 32-bit words on every device.
    narrow = {b.data_type for b in buffers if b.width == 1}
    wanted |= {"float16"} & narrow
    if narrow & {"int8", "uint8"}:
        wanted.add("int8")
    if int64:
        wanted.add("int64")
    if available >= _HALF_DEVICES and any(b.data_type == "float16" for b in buffers):
        wanted |= HALF_CONVERSIONS
    return available & wanted

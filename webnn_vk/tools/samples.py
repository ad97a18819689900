"""Sample problems and sample targets: what is planned for them is in the archive of precompiled
shaders.

A sample is an operator's call on operands of some shapes, for every combination of data types that
the operator takes. Its sizes decide how kernels load and store (multiples of 4 and 8 in vectors,
others element by element) and how long rows are. An operator that is not named here is called on
matrices with its default arguments.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from webnn_vk.compiler.ir import Graph, Value
from webnn_vk.compiler.ir.emit import Emitter, bind_call, make_node
from webnn_vk.compiler.kernels import FAMILIES, MATRIX_FEATURES, KernelNode
from webnn_vk.compiler.kernels.expression import HALF_CONVERSIONS
from webnn_vk.compiler.kernels.loads import SHUFFLES, SUBGROUP_SUMS
from webnn_vk.compiler.ops import ALL_OPERATORS, Operator
from webnn_vk.compiler.ops.arguments import DataTypeName
from webnn_vk.compiler.ops.lowering import Elementwise
from webnn_vk.compiler.types.access import Access
from webnn_vk.compiler.types.data_types import (
    ALL_TYPES,
    FLOAT_TYPES,
    LOW_PRECISION,
    MLOperandDescriptor,
)
from webnn_vk.driver.device_profile import CooperativeMatrix, DeviceProfile
from webnn_vk.runtime.device_selection import NullDevice

#: Kernels that use these have variants that do without: devices have any subset of them.
OPTIONAL = (
    *(frozenset({name}) for name in ("float16", "int8", "int16", "int64", "integer_dot_product")),
    HALF_CONVERSIONS,
    HALF_CONVERSIONS - {"float16_arithmetic"},  # which products by matrices need
)
_PLAIN_FEATURES = frozenset().union(*OPTIONAL) | SUBGROUP_SUMS | SHUFFLES
#: All features that kernels use.
FEATURES = _PLAIN_FEATURES | MATRIX_FEATURES

_LEAST = NullDevice().profile
#: A device on the processor, which reads texels. No driver of such devices promises exact
#: conversions of float16.
SOFTWARE = _LEAST.replace(
    device_type="cpu",
    features=_LEAST.features | (_PLAIN_FEATURES - HALF_CONVERSIONS) | {"texel_buffers"},
    max_texel_buffer_elements=_LEAST.max_storage_buffer_range,
    max_storage_buffers_per_stage=32, max_storage_buffers_per_set=32,
    subgroup_size=8, min_subgroup_size=8, max_subgroup_size=8,
)
#: A GPU that multiplies matrices.
GPU = SOFTWARE.replace(
    device_type="discrete",
    features=SOFTWARE.features | HALF_CONVERSIONS | MATRIX_FEATURES,
    max_workgroup_size=(1024, 1024, 64), max_workgroup_invocations=1024, max_shared_memory=49152,
    subgroup_size=32, min_subgroup_size=32, max_subgroup_size=32,
    cooperative_matrices=tuple(
        CooperativeMatrix(16, 16, 16, kind, kind, "float32", "float32") for kind in FLOAT_TYPES
    ),
)
TARGETS = (SOFTWARE, GPU)
#: The targets of fused kernels. Their matrices are float32, which no known device multiplies by
#: cooperative ones.
FUSED_TARGETS = (SOFTWARE, GPU.replace(cooperative_matrices=()))
#: Kernels that pack constants read texels on every device that has them.
_PACKING = (*TARGETS, SOFTWARE.masked(["texel_buffers"]))


# -- operators by themselves

#: Shapes of the operands, None for an absent one, and arguments by name.
Case = tuple[tuple[tuple[int, ...] | None, ...], dict[str, Any]]


def _case(*shapes: tuple[int, ...] | None, **arguments: Any) -> Case:
    return shapes, arguments


def _convolution(
    layout: str, filters: str, c_in: int, c_out: int, side: int, bias: bool, groups: int = 1,
) -> Case:
    """A convolution of 3x3 taps; ``c_in`` and ``c_out``: channels of all groups."""
    image = {"n": 1, "c": c_in, "h": side, "w": side}
    taps = {"o": c_out, "i": c_in // groups, "h": 3, "w": 3}
    return _case(
        tuple(image[d] for d in layout), tuple(taps[d] for d in filters),
        (c_out,) if bias else None, input_layout=layout, filter_layout=filters, groups=groups,
        padding=[1] * 4,
    )


_FLAGS = (False, True)
_PLAIN, _RUNS = (3,) * 8, (3,) * 7 + (16,)  # elements by themselves, and runs of them
_LENGTHS = (8, 7, 2048, 2047, 1 << 16)
_CHUNKED = (3 << 14, (3 << 14) + 1, 1 << 16, 127 << 14)  # of which GPUs make 3, 4 and 127 chunks
_ROWS = [_case((2, length), axes=[1]) for length in _LENGTHS]
_ALONG = [_case((2, length), axis=1) for length in _LENGTHS]
_WINDOWS = [_case((1, 1, 8, 8), window_dimensions=[2, 2])]
_BLOCKS = [_case((), (), ()), _case((4,) * 5, (2,) * 5, (2,) * 5)]

_LOW_FLOATS = [t.name for t in LOW_PRECISION.values() if t.kind == "f"]
_LOW_INTEGERS = [t.name for t in LOW_PRECISION.values() if t.kind != "f"]

#: Cases by an operator's or a family's name, without those that add no module.
_CASES: dict[str, Sequence[Case]] = {
    "decode": [_case((), data_type=t) for t in _LOW_FLOATS],
    "encode": [_case((), data_type=t) for t in _LOW_FLOATS],
    "low_bits": [_case((), data_type=t, shift=s) for t in _LOW_INTEGERS for s in ("0", "4")],
    "dequantize_linear": _BLOCKS,
    "quantize_linear": _BLOCKS,
    "transpose": [
        _case(shape[-rank:], permutation=[*range(rank - kept)[::-1], *[rank - 1] * kept])
        for shape, kept in ((_PLAIN, 0), (_RUNS, 1), ((64, 64), 0)) for rank in (2, 3, 4, 6)
        if rank <= len(shape)
    ],
    "slice": [_case((5,), starts=[1], sizes=[3]), _case((32,), starts=[0], sizes=[16])],
    "concat": [], "split": [], "expand": [], "reverse": [],
    "tile": [_case((2,) * 7 + (n,), repetitions=[2] * 8) for n in (3, 16)],
    "pad": [
        _case(
            shape[-rank:], mode=mode, beginning_padding=[1] * (rank - kept) + [0] * kept,
            ending_padding=[0] * rank,
        )
        for shape, kept in ((_PLAIN, 0), (_RUNS, 1)) for rank in (1, 2, 3, 4, 5, 6, 8)
        if rank > kept for mode in ("constant", "edge", "reflection")
    ],
    "gather": [_case((4, n), (2,)) for n in (3, 16)],
    "gather_elements": [_case((4, 3), (2, 3))],
    "gather_nd": [_case((4, n), (2, 1)) for n in (3, 16)],
    "scatter_elements": [_case((4, 3), (2, 3), (2, 3))],
    "scatter_nd": [_case((4, n), (2, 1), (2, n)) for n in (3, 16)],
    "reduce": [*_ROWS, *(_case((1, length), axes=[1]) for length in _CHUNKED)],
    "arg_min": _ALONG, "arg_max": _ALONG, "softmax": _ALONG, "cumulative_sum": _ALONG,
    "rms_normalization": _ROWS,
    "layer_normalization": [
        *(_case((2, n), (n,), (n,), axes=[1]) for n in _LENGTHS),
        _case((2, 3, 8), (8, 3), (8, 3), axes=[2, 1]),
    ],
    "instance_normalization": [_case((2, 3, n, 8), (3,), (3,)) for n in _LENGTHS],
    "batch_normalization": [_case((2, 3), (3,), (3,), (3,), (3,))],
    "resample2d": [
        _case((1, 1, 4, 4), scales=[2, 2], mode=mode) for mode in ("nearest-neighbor", "linear")
    ],
    "average_pool2d": _WINDOWS, "l2_pool2d": _WINDOWS, "max_pool2d": _WINDOWS,
    "attention": [
        _case((2, 8, n), (2, 8, n), (2, 8, n), mask, seen, causal=causal)
        for n in (8, 7) for mask in (None, (8, 8)) for seen in (None, (8, 8)) for causal in _FLAGS
    ] + [
        _case((2, 8, n), (2, 8, n), (2, 8, n), None, seen, (1,), causal=causal, softcap=cap)
        for causal in _FLAGS for n, seen, cap in (
            (8, None, 0.0), (7, None, 0.0), (8, (8, 8), 0.0), (8, None, 50.0), (8, (8, 8), 50.0)
        )
    ],
    "lstm_recurrence": [_case((2, 2, 1, 32), (1, 8, 32))],
    "gru_recurrence": [
        _case((2, 2, 1, 24), (1, 8, 24), reset_after=after) for after in _FLAGS
    ],
    "integer_matmul": [
        _case((8, k), (8, 16), (8,), zeros) for k in (16, 12, 15) for zeros in (None, (8,))
    ],
    "block_matmul": [
        _case((8, k), (8, 2 * bits), (8, 2), offset, bits=bits)
        for k in (64, 63) for bits in (4, 8) for offset in (None, (8, 2))
    ],
    # Only compilers make these.
    "quantized_matmul": [], "quantized_conv2d": [],
    # Matrices of an odd size behind each other.
    "matmul": [_case((2, 7, 8), (2, 8, 7))],
    "gemm": [
        _case((k, m) if ta else (m, k), (n, k) if tb else (k, n), c, a_transpose=ta, b_transpose=tb)
        # A binding holds a part of the longer inner dimension.
        for m, k, columns, flags in ((8, 256, (8, 7, 1), _FLAGS), (2, 1 << 28, (2, 1), (True,)))
        for n in columns
        for c in (None, (m, n)) for ta in _FLAGS for tb in flags
    ],
    "conv2d": [
        *(
            _convolution(layout, filters, c_in, c_out, side, bias)
            for layout, filters, channels in (
                ("nchw", "oihw", (8, 3)), ("nchw", "hwio", (8, 4, 3)), ("nhwc", "oihw", (8, 3)),
                ("nhwc", "ohwi", (4, 3)), ("nhwc", "hwio", (8, 4, 3)),
            )
            for c_in in channels for c_out, side in ((8, 8), (8, 7), (7, 8)) for bias in _FLAGS
        ),
        *(
            _convolution(layout, "oihw", 8, 8, side, bias, groups=8)
            for layout in ("nchw", "nhwc") for side in (8, 7) for bias in _FLAGS
        ),
    ],
    "conv_transpose2d": [
        _convolution(layout, filters, 8, 8, 8, bias)
        for layout, filters in (("nchw", "iohw"), ("nhwc", "ohwi")) for bias in _FLAGS
    ],
}
#: Convolutions whose filter is a constant.
_CONSTANT = [
    _convolution(layout, "oihw", 64, 8, side, bias)
    for layout in ("nchw", "nhwc") for side in (8, 7) for bias in _FLAGS
]


def problems(family: str = "") -> Iterator[tuple[KernelNode, Sequence[DeviceProfile]]]:
    """Every sample without fused steps, of one family or of all, and what it is planned for."""
    for operator in ALL_OPERATORS.values():
        if getattr(operator.lowering, "family", None) in ((family,) if family else FAMILIES):
            for shapes, arguments in _cases(operator):
                others = _OTHERS.get((operator.name, shapes[0]))
                for node in _typed(operator, shapes, arguments):
                    yield node, TARGETS
                    if others is not None:
                        yield from ((other, TARGETS) for other in others(node))
    for shapes, arguments in _CONSTANT if family in ("", "conv") else ():
        for node in _typed(ALL_OPERATORS["conv2d"], shapes, arguments, constant="filter"):
            yield node, _PACKING


def over_many_keys() -> Iterator[KernelNode]:
    """Attention of few queries over many keys, whose modules the shader archive has no room for."""
    for n, mask, length in ((8, (2, 600), None), (8, None, (1,)), (7, None, None)):
        shapes = (1, 2, n), (1, 600, n), (1, 600, n), mask, mask, length
        yield from _typed(
            ALL_OPERATORS["attention"], shapes, {"causal": bool(mask), "softcap": 50.0 * (n == 8)}
        )


def _moved(node: KernelNode) -> Iterator[KernelNode]:
    """The product of matrices one or both of which begin at another element of their tensors, where
    no vector begins, or only a shorter one."""
    for names, start in (("a", 1), ("b", 1), ("ab", 1), ("ab", 4)):
        operands = dict(node.operands)
        for name in names:
            access = operands[name]
            longer = _value(access.data_type, (access.size + start,))
            operands[name] = replace(access, value=longer, offset=start)
        yield replace(node, operands=operands)


def _turned(node: KernelNode) -> Iterator[KernelNode]:
    """The product of matrices one or both of which are transposes of what is stored."""
    for names in ("a", "b", "ab"):
        operands = dict(node.operands)
        for name in names:
            access = operands[name]
            batch, rows, columns = access.shape
            stored = Access.dense(access.value, (batch, columns, rows))
            operands[name] = stored.permuted((0, 2, 1))
        yield replace(node, operands=operands)


def _updating(node: KernelNode) -> Iterator[KernelNode]:
    """The scatter into a donated input."""
    yield replace(node, in_place=frozenset((0,)))


#: Nodes that differ from what the builder makes, by operator and shape of the first operand.
_OTHERS: Mapping[tuple[str, Any], Callable[[KernelNode], Iterator[KernelNode]]] = {
    ("gemm", (8, 256)): _moved, ("gemm", (256, 8)): _moved, ("matmul", (2, 7, 8)): _turned,
    ("scatter_nd", (4, 3)): _updating, ("scatter_nd", (4, 16)): _updating,
    ("scatter_elements", (4, 3)): _updating,
}


# -- operators with the element-wise steps behind them that many models have

#: Operators in turn, and what they read beside the result so far: a tensor of its shape, a row of
#: it or a number.
_Chain = tuple[tuple[str, str], ...]
_RELU: tuple[_Chain, ...] = (
    (("relu", ""),), (("clamp", ""),), (("add", "tensor"),), (("add", "tensor"), ("relu", "")),
)
_BIAS: tuple[_Chain, ...] = (
    (("add", "row"),), (("add", "row"), ("relu", "")), (("add", "row"), ("gelu", "")),
    (("add", "row"), ("add", "tensor")),
)
_SCORES: tuple[_Chain, ...] = (
    (("mul", "number"),), (("div", "number"),), (("mul", "number"), ("add", "row")),
)


def chains() -> Iterator[Graph]:
    """Samples of a convolution or a product of float32 and the steps behind it."""
    convolutions = [
        *(
            _convolution(layout, filters, c_in, 8, side, True)
            for layout, filters, side in (
                ("nchw", "hwio", 8), ("nchw", "hwio", 7), ("nhwc", "hwio", 8)
            ) for c_in in (8, 4, 3)
        ),
        *(_convolution("nchw", "oihw", 8, 8, side, True, groups=8) for side in (8, 7)),
    ]
    products = [_case((8, 256), (256, n), (n,)) for n in (8, 7)]
    for operator, cases, of, constant in (
        ("conv2d", convolutions, _RELU, False),
        ("conv2d", [c for c in _CONSTANT if c[0][2] is not None], _RELU, True),
        ("gemm", products, (*_RELU, (("gelu", ""),)), False),
        ("gemm", [_case((8, 256), (256, 8))], (*_BIAS, *_SCORES), False),
        ("gemm", [_case((8, 256), (8, 256), b_transpose=True)], _SCORES, False),
    ):
        for (shapes, arguments), chain in itertools.product(cases, of):
            yield _graph(operator, shapes, arguments, chain, constant)


def _graph(
    operator: str, shapes: Sequence[tuple[int, ...] | None], arguments: dict[str, Any],
    chain: _Chain, constant: bool,
) -> Graph:
    emit = Emitter()
    names = [p.name for p in ALL_OPERATORS[operator].operands]
    operands = {
        name: _value("float32", shape, constant and name == "filter")
        for name, shape in zip(names, shapes, strict=False) if shape is not None
    }
    inputs = [value for value in operands.values() if not value.is_constant]
    result = getattr(emit, operator)(**operands, **arguments)
    for step, beside in chain:
        if beside:
            shape = {"tensor": result.shape, "row": result.shape[-1:], "number": ()}[beside]
            inputs.append(_value("float32", shape))
        result = getattr(emit, step)(result, *inputs[-1:] * bool(beside))
    named = {str(i): value for i, value in enumerate(inputs)}
    return Graph(named, {"y": result}, tuple(emit.nodes))


def _cases(operator: Operator) -> Sequence[Case]:
    for name in (operator.name, operator.lowering.family):
        if name in _CASES:
            return _CASES[name]
    count = len(operator.operands)
    if isinstance(operator.lowering, Elementwise):
        return [_case(*[()] * count)]
    return [_case(*[(n, n)] * count) for n in (8, 7)]


def _typed(
    operator: Operator, shapes: Sequence[tuple[int, ...] | None], arguments: dict[str, Any],
    constant: str = "",
) -> Iterator[KernelNode]:
    """The call for every combination of data types that the operator allows."""
    given = {
        p.name: shape for p, shape in zip(operator.operands, shapes, strict=False)
        if shape is not None
    }
    chosen = [p.name for p in operator.arguments if p.argument is DataTypeName]
    types = [operator.limit(name).types for name in given] + [ALL_TYPES for _ in chosen]
    for combination in itertools.product(*types):
        kinds = dict(zip((*given, *chosen), combination, strict=True))
        operands = {
            name: _value(kinds.pop(name), shape, name == constant) for name, shape in given.items()
        }
        try:
            call = bind_call(operator, (), {**operands, **arguments, **kinds})
            yield KernelNode.of(make_node(operator, call.operands, call.arguments))
        except TypeError:
            continue  # the combination is not allowed


def _value(data_type: str, shape: tuple[int, ...], constant: bool = False) -> Value:
    descriptor = MLOperandDescriptor(data_type, shape)
    return Value(descriptor, data=np.zeros(shape, descriptor.numpy_dtype) if constant else None)

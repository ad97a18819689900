"""Products with dequantised weights read the integers: a quarter of the memory and of the loads. A
scale for all columns or for each column is applied to the sum, which loses no precision. With
scales of blocks along the inner dimension they become `block_matmul`, whose integers take 4 bits if
these hold them. On devices where integers load slower than floats, other weights become floats when
the graph is built."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

from ..ir import Emitter, Graph, Node, Value
from ..ops.block_product import packed
from ..ops.quantized import WEIGHT_TYPES
from .fold import derived_constant, fold_nodes
from .patterns import Anything, Constant, Match, Maybe, Op
from .pipeline import Compilation, Pass
from .rewrite import Rewrite, apply_rewrites

# Weights with fewer elements are folded: the memory they take does not justify a kernel.
_MIN_ELEMENTS = 4096


def _weights(rank: int = 2) -> Op:
    return Op(
        "dequantize_linear", bind="weights", scale=Constant("scale"), zero_point=Constant("zero"),
        input=Anything("integers", where=lambda v: (
            v.is_constant and v.data_type in WEIGHT_TYPES and len(v.shape) == rank
            and v.descriptor.size >= _MIN_ELEMENTS
        )),
    )


def product_rules(
    a: Any, weights: Op, build: Callable[[Match, Emitter], Value | None]
) -> Iterator[Rewrite]:
    """Rewrites of matmul and gemm whose second operand is ``weights``, maybe transposed."""
    for b in (weights, Op("transpose", bind="transpose", input=weights, permutation=(1, 0))):
        yield Rewrite("matmul", Op("matmul", a=a, b=b), build)
        yield Rewrite("gemm", Op("gemm", a=a, b=b, c=Maybe(Anything("c"))), build)


def has_transposed_weights(match: Match) -> bool:
    """Whether a product that ``product_rules`` matched reads its weights transposed."""
    return match.root.arguments.get("b_transpose", False) != (match.get("transpose") is not None)


def gemm_addend(match: Match, emit: Emitter) -> Value | None:
    """beta · C of the matched product in float32; None if it has none."""
    c = match.get("c")
    if c is not None and c.data_type != "float32":
        c = emit.cast(c, "float32")
    beta = match.root.arguments.get("beta", 1)
    return c if c is None or beta == 1 else emit.mul(c, emit.constant(beta, "float32"))


def added_and_cast(match: Match, emit: Emitter, result: Value, addend: Value | None) -> Value:
    """``result`` + ``addend`` in the data type of the matched node."""
    if addend is not None:
        result = emit.add(result, addend)
    data_type = match.root.output.data_type
    return result if data_type == "float32" else emit.cast(result, data_type)


def _product(match: Match, emit: Emitter) -> Value | None:
    """The matched product, of the integers."""
    options, a = match.root.arguments, match["a"]
    if options.get("a_transpose"):
        a = emit.transpose(a, permutation=(1, 0))
    transposed, alpha = has_transposed_weights(match), options.get("alpha", 1.0)
    addend = gemm_addend(match, emit)
    columns = 0 if transposed else 1
    scale = _scale_of_columns(match["scale"], match["integers"].shape, columns)
    found = _with_one_zero_point(match["integers"], match["zero"])
    if scale is None or found is None:
        return None
    integers, zero_point = found
    sums = emit.quantized_matmul(a, integers, zero_point=zero_point, b_transpose=transposed)
    result = emit.mul(sums, emit.constant((scale * alpha).astype(np.float32)))
    return added_and_cast(match, emit, result, addend)


def _block_product(match: Match, emit: Emitter) -> Value | None:
    """The matched product with scales of blocks."""
    options, a, cut = match.root.arguments, match["a"], match.get("slice")
    if options.get("a_transpose"):
        a = emit.transpose(a, permutation=(1, 0))
    transposed = has_transposed_weights(match)
    found = _blocks_of(match["integers"], match["scale"], match["zero"], transposed)
    if found is None or (cut is not None and not (
        transposed and cut.arguments["starts"] == (0, 0) and cut.output.shape[0] == len(found.words)
        and a.shape[-1] > found.words.shape[1] * 32 // found.bits - found.block
    )):
        return None
    integers = match["integers"]
    computation = "blocks", found.bits, transposed, found.zero_point
    words = derived_constant(found.words, [integers], *computation)
    offset = None if found.offset is None else emit.constant(found.offset)
    addend = gemm_addend(match, emit)
    result = emit.block_matmul(
        a, words, emit.constant(found.scale), offset=offset, bits=found.bits,
        zero_point=found.zero_point,
    )
    if options.get("alpha", 1.0) != 1:
        result = emit.mul(result, emit.constant(options["alpha"], "float32"))
    return added_and_cast(match, emit, result, addend)


@dataclass(frozen=True)
class _Blocks:
    """Operands and arguments of `block_matmul`. ``block``: elements."""

    words: np.ndarray
    scale: np.ndarray
    offset: np.ndarray | None
    bits: int
    zero_point: float
    block: int


def _blocks_of(
    integers: Value, scale: Value, zero: Value, transposed: bool
) -> _Blocks | None:
    """Weights with scales of blocks along the inner dimension; None where these are no such.
    ``transposed``: they are [columns, inner dimension]."""
    if integers.data is None or not np.isfinite(scale.data).all():
        return None
    q, s, z = (v.data if transposed else v.data.T for v in (integers, scale, zero))
    block = q.shape[1] // s.shape[1]
    if s.shape[1] == 1 or block < 4 or block & (block - 1):
        return None
    low, high = (-8, 7) if q.dtype == np.int8 else (0, 15)
    bits = 4 if q.min() >= low and q.max() <= high and not q.shape[1] % 8 else 8
    least = 0 if q.dtype == np.uint8 else -(1 << (bits - 1))
    s, z = (np.repeat(v, q.shape[0] // v.shape[0], axis=0) for v in (s, z))
    first = float(z.flat[0]) - least
    offset = None
    if (z == z.flat[0]).all() and 0 <= first < 1 << bits:
        zero_point = first
    else:
        # Zero points of blocks, or one that the bits don't hold.
        s, zero_point = s.astype(np.float32), 0.0
        offset = s * (least - z.astype(np.float32))
    unsigned = (q.astype(np.int16) - least).astype(np.uint8)
    return _Blocks(packed(unsigned, bits), s, offset, bits, zero_point, block)


def _conv2d(match: Match, emit: Emitter) -> Value | None:
    """The convolution with the integers, scaled by output channel."""
    arguments = match.root.arguments
    integers = match["integers"]
    outputs = arguments["filter_layout"].index("o")
    scale = match["scale"]
    if any(n != 1 for axis, n in enumerate(scale.shape) if axis != outputs) or not (
        np.isfinite(scale.data).all()
    ):
        return None
    found = _with_one_zero_point(integers, match["zero"])
    if found is None:
        return None
    integers, zero_point = found
    result = emit.quantized_conv2d(match["x"], integers, zero_point=zero_point, **arguments)
    channels = integers.shape[outputs]
    row = (channels, 1, 1) if arguments["input_layout"] == "nchw" else (channels,)
    factors = scale.data.astype(np.float32).reshape(-1)
    if factors.size > 1:
        factors = np.repeat(factors, channels // factors.size).reshape(row)
    else:
        factors = factors.reshape(())
    result = emit.mul(result, emit.constant(factors))
    bias = match.get("bias")
    if bias is not None:
        if bias.data is not None:
            bias = emit.constant(bias.data.astype(np.float32).reshape(row))
        else:
            bias = bias if bias.data_type == "float32" else emit.cast(bias, "float32")
            bias = emit.reshape(bias, row)
    return added_and_cast(match, emit, result, bias)


def _scale_of_columns(
    scale: Value, shape: tuple[int, ...], columns: int
) -> np.ndarray | None:
    """One scale a column, or one for all; None where it changes along the inner dimension."""
    if scale.shape[1 - columns] != 1 or not np.isfinite(scale.data).all():
        return None
    flat = scale.data.astype(np.float64).reshape(-1)
    return flat.reshape(()) if flat.size == 1 else np.repeat(flat, shape[columns] // flat.size)


def _with_one_zero_point(integers: Value, zero: Value) -> tuple[Value, float] | None:
    """The integers and their one zero point. Several zero points are subtracted from the integers,
    with 0 as the new zero point; None if 8 bits can't hold the differences."""
    assert zero.data is not None
    first = zero.data.reshape(-1)[0]
    if (zero.data == first).all():
        return integers, float(first)
    if integers.data is None:
        return None
    wide = zero.data.astype(np.int16)
    for axis, size in enumerate(integers.shape):
        wide = np.repeat(wide, size // wide.shape[axis], axis)
    centred = integers.data.astype(np.int16) - wide
    if centred.min() < -128 or centred.max() > 127:
        return None
    computation = ("centred", zero.data.tobytes(), zero.shape)
    return derived_constant(centred.astype(np.int8), [integers], computation), 0.0


def _block_rules() -> Iterator[Rewrite]:
    yield from product_rules("a", _weights(), _block_product)
    # Rows of whole blocks may leave out their last elements.
    b = Op("transpose", bind="transpose", permutation=(1, 0),
           input=Op("slice", bind="slice", input=_weights()))
    yield Rewrite("matmul", Op("matmul", a="a", b=b), _block_product)


_BLOCK_RULES = tuple(_block_rules())
_RULES = (
    *_BLOCK_RULES,
    *product_rules("a", _weights(), _product),
    Rewrite(
        "conv2d", Op("conv2d", input="x", filter=_weights(4), bias=Maybe(Anything("bias"))), _conv2d
    ),
)

_CONVOLUTIONS = frozenset(("conv2d", "conv_transpose2d"))
_PRODUCTS = _CONVOLUTIONS | {"matmul", "gemm"}


def fold_weights(
    graph: Graph, compilation: Compilation, products: frozenset[str] = _PRODUCTS
) -> Graph:
    """The graph with floats in place of dequantised constants that only ``products`` read, even
    where they take more memory than folding allows."""

    def is_folded(node: Node) -> bool:
        if node.operator.name != "dequantize_linear":
            return False
        readers = list(graph.users.get(node.output, ()))
        readers += [
            after for reader in readers if reader.operator.name == "transpose"
            for after in graph.users.get(reader.output, ())
        ]
        return (
            node.operator.name not in compilation.force_cpu
            and all(value.data is not None for value in node.inputs)
            and node.output not in graph.output_values
            and all(reader.operator.name in products | {"transpose"} for reader in readers)
            and any(reader.operator.name in products for reader in readers)
        )

    return fold_nodes(graph, compilation, is_folded)


def takes_quantized(profile: DeviceProfile) -> bool:
    """Whether the device gains from products with integer weights, scales of blocks aside.

    Software Vulkan loads floats as texels, but integers from storage buffers, lane by lane. On
    lavapipe (Mesa 22.3) a product with 8-bit weights took 4.2 ms of CPU time for 1 × 1024 × 1024
    and 30 ms for 128 × 768 × 768; with floats it took 2.1 and 10 ms, dequantised first 12 and 17.
    """
    return not profile.is_software


def _run(graph: Graph, compilation: Compilation) -> Graph:
    if compilation.profile is None:
        return graph
    quantized = takes_quantized(compilation.profile)
    # A scale that is applied to the sum is part of the product's kernel, which is compiled for this
    # graph.
    graph = apply_rewrites(
        graph, _RULES if quantized and compilation.has_compiler else _BLOCK_RULES,
        kept=compilation.force_cpu,
        applied=lambda text: compilation.notes.add("fuse_dequantize", text),
    )
    if quantized and not compilation.has_compiler:
        return graph
    # No kernel reads these filters as integers: floats are faster than dequantising at each run.
    return fold_weights(graph, compilation, _CONVOLUTIONS if quantized else _PRODUCTS)


FUSE_DEQUANTIZE = Pass("fuse_dequantize", _run)

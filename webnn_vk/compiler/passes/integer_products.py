"""Products of two dequantised tensors, the second constant, are summed as integers, exactly, and by
four products an instruction on GPUs that support it. The scales are applied to the sum."""

from __future__ import annotations

import numpy as np

from webnn_vk.support.integers import round_up

from ..ir import Emitter, Value
from ..ops.quantized import INTEGER_STEP, LONGEST_INTEGER_SUM, WEIGHT_TYPES
from .fold import derived_constant
from .patterns import Anything, Constant, Match, Op
from .pipeline import Compilation
from .quantized import added_and_cast, gemm_addend, has_transposed_weights, product_rules
from .rewrite import rewrite_pass

# With fewer rows, loading the weights takes longest, and `fuse_dequantize` reads them as integers
# too.
_MIN_ROWS = 16


def _left() -> Op:
    return Op(
        "dequantize_linear", scale=Constant("a_scale", where=_is_one_number),
        zero_point=Constant("a_zero", where=_is_one_number),
        input=Anything("a", where=lambda v: (
            not v.is_constant and v.data_type in WEIGHT_TYPES and len(v.shape) >= 2
        )),
    )


def _right() -> Op:
    return Op(
        "dequantize_linear", scale=Constant("b_scale"), zero_point=Constant("b_zero"),
        input=Constant("b", where=lambda v: v.data_type in WEIGHT_TYPES and len(v.shape) == 2),
    )


def _is_one_number(value: Value) -> bool:
    assert value.data is not None
    flat = value.data.reshape(-1)
    return bool(np.isfinite(flat).all() and (flat == flat[0]).all())


def _product(match: Match, emit: Emitter) -> Value | None:
    """The matched product, summed up as integers."""
    a, b, options = match["a"], match["b"], match.root.arguments
    if options.get("a_transpose"):
        return None
    transposed, addend = has_transposed_weights(match), gemm_addend(match, emit)
    columns = 0 if transposed else 1
    inner, count = b.shape[1 - columns], b.shape[columns]
    if inner > LONGEST_INTEGER_SUM or a.descriptor.size < _MIN_ROWS * inner:
        return None
    scales = _by_column(match["b_scale"], columns, count)
    zeros = _by_column(match["b_zero"], columns, count)
    if scales is None or zeros is None or not np.isfinite(scales).all():
        return None
    rows = b.data if transposed else b.data.T
    # The same numbers as signed bytes, which the instruction for dot products takes.
    shift = 128 if b.data_type == "uint8" else 0
    signed = (rows.astype(np.int16) - shift).astype(np.int8)
    zeros = zeros.astype(np.int32) - shift
    sums = signed.sum(axis=1, dtype=np.int32) - np.int32(inner) * zeros
    padded = np.zeros((count, round_up(inner, INTEGER_STEP)), np.int8)
    padded[:, :inner] = signed
    total = emit.integer_matmul(
        a, derived_constant(padded, [b], "rows", transposed), emit.constant(sums),
        zero_points=emit.constant(zeros) if zeros.any() else None,
        a_zero_point=float(match["a_zero"].data.reshape(-1)[0]),
    )
    scale = float(match["a_scale"].data.reshape(-1)[0])
    factors = (scales.astype(np.float64) * scale * options.get("alpha", 1.0)).astype(np.float32)
    if (factors == factors[0]).all():
        factors = factors[0].reshape(())
    return added_and_cast(match, emit, emit.mul(total, emit.constant(factors)), addend)


def _by_column(value: Value, columns: int, count: int) -> np.ndarray | None:
    """One number for each column of the product; None if they vary along the inner dimension."""
    assert value.data is not None
    if value.shape[1 - columns] != 1:
        return None
    flat = value.data.reshape(-1)
    return np.repeat(flat, count // flat.size)


def multiplies_integers(compilation: Compilation) -> bool:
    """Whether the device gains from sums of integers: whether it has dot products of four in
    hardware. The scale is part of the product's kernel, which is compiled for this graph.

    On software Vulkan each takes many instructions: for 128 × 768 × 768 lavapipe took 93 ms of CPU
    time with integers and 9 ms with floats.
    """
    profile = compilation.profile
    if profile is None or profile.is_software or not compilation.has_compiler:
        return False
    return {"integer_dot_product", "integer_dot_product_accelerated"} <= profile.features


INTEGER_PRODUCTS = rewrite_pass(
    "integer_products", *product_rules(_left(), _right(), _product), rounds=1,
    when=multiplies_integers,
)

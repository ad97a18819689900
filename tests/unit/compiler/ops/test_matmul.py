"""matmul and gemm: validation, shapes, and the references compared with independent values."""

from __future__ import annotations

import numpy as np
import pytest

from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def _operands(**shapes):
    return {
        name: None if shape is None else MLOperandDescriptor(
            *(shape if isinstance(shape[0] if shape else 0, str) else ("float32", shape))
        )
        for name, shape in shapes.items()
    }


def _infer(name: str, operands: dict, **arguments):
    operator = OPERATORS[name]
    given = {p.name: arguments.get(p.name, p.default) for p in operator.arguments}
    inferred = operator.validate(operands, given, "here")
    # The verifier infers again from the normal form.
    assert operator.validate(operands, dict(inferred.arguments)) == inferred
    return inferred


def _compute(name: str, arrays: dict, **arguments) -> np.ndarray:
    described = {
        name: None if a is None else MLOperandDescriptor(a.dtype.name, a.shape)
        for name, a in arrays.items()
    }
    inferred = _infer(name, described, **arguments)
    (result,) = OPERATORS[name].evaluate(inferred.outputs, arrays, inferred.arguments)
    return result


@pytest.mark.parametrize(
    ("a", "b", "shape"),
    [
        ((2, 3), (3, 4), (2, 4)),
        ((5, 2, 3), (3, 4), (5, 2, 4)),
        ((2, 3), (5, 3, 4), (5, 2, 4)),
        ((5, 1, 2, 3), (6, 3, 1), (5, 6, 2, 1)),
        ((1,) * 6 + (2, 3), (2,) * 6 + (3, 4), (2,) * 6 + (2, 4)),
    ],
)
def test_matmul_shapes(a, b, shape) -> None:
    (output,) = _infer("matmul", _operands(a=a, b=b)).outputs
    assert output == MLOperandDescriptor("float32", shape)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ((3,), (3, 4), r"matmul \[here\]: a is float32\[3\]; its rank has to be 2 … 8"),
        ((2, 3), (4, 3), r"a is float32\[2, 3\] and b is float32\[4, 3\]; .*\(3\).*\(4\)"),
        ((2, 2, 3), (3, 3, 4), "before the last two do not broadcast"),
        (("int32", (2, 3)), ("int32", (3, 4)), "has to be one of float32, float16"),
        ((2, 3), ("float16", (3, 4)), "a is float32, b is float16; the same data type"),
    ],
)
def test_matmul_rejects(a, b, message: str) -> None:
    with pytest.raises(TypeError, match=message):
        _infer("matmul", _operands(a=a, b=b))


def test_matmul_is_a_sum_of_products() -> None:
    rng = np.random.default_rng(0)
    a = rng.integers(-4, 5, (2, 1, 3, 4)).astype(np.float32)
    b = rng.integers(-4, 5, (5, 4, 2)).astype(np.float32)
    np.testing.assert_array_equal(
        _compute("matmul", {"a": a, "b": b}), np.einsum("xymk,ykn->xymn", a.repeat(5, 1), b)
    )


def test_float16_sums_in_float32() -> None:
    a = np.full((1, 4096), 0.5, np.float16)
    b = np.full((4096, 1), 0.5, np.float16)
    # Beyond 512 a float16 sum of quarters would stop growing.
    np.testing.assert_array_equal(_compute("matmul", {"a": a, "b": b}), [[1024]])


@pytest.mark.parametrize("c", [None, (), (4,), (1,), (3, 1), (1, 4), (3, 4)])
@pytest.mark.parametrize("at", [False, True])
@pytest.mark.parametrize("bt", [False, True])
def test_gemm(c, at: bool, bt: bool) -> None:
    rng = np.random.default_rng(1)
    a = rng.integers(-4, 5, (5, 3) if at else (3, 5)).astype(np.float32)
    b = rng.integers(-4, 5, (4, 5) if bt else (5, 4)).astype(np.float32)
    addend = None if c is None else rng.integers(-4, 5, c).astype(np.float32)
    expected = np.zeros((3, 4), np.float32)
    for m in range(3):
        for n in range(4):
            for k in range(5):
                expected[m, n] += (a[k, m] if at else a[m, k]) * (b[n, k] if bt else b[k, n])
    expected = 0.5 * expected + (0 if addend is None else 3 * np.broadcast_to(addend, (3, 4)))
    arrays = {"a": a, "b": b, "c": addend}
    result = _compute("gemm", arrays, alpha=0.5, beta=3.0, a_transpose=at, b_transpose=bt)
    np.testing.assert_array_equal(result, expected)


def test_gemm_casts_its_numbers() -> None:
    operands = _operands(a=("float16", (2, 3)), b=("float16", (3, 2)), c=None)
    arguments = _infer("gemm", operands, alpha=0.1, beta=1e6).arguments
    assert arguments["alpha"] == float(np.float16(0.1)) and arguments["beta"] == np.inf


@pytest.mark.parametrize(
    ("operands", "arguments", "message"),
    [
        (dict(a=(2, 3), b=(3,)), {}, "b is float32.3.; its rank has to be 2"),
        (dict(a=(2, 3), b=(4, 3)), {}, "columns of the first .3. .* rows of the second .4."),
        (dict(a=(2, 3), b=(3, 4)), {"a_transpose": True}, "transposed"),
        (dict(a=(2, 3), b=(3, 4), c=(2,)), {}, r"c is float32\[2\]; .* broadcasts to \[2, 4\]"),
        (dict(a=(2, 3), b=(3, 4), c=(1, 2, 4)), {}, "c is .*; its rank has to be 0 … 2"),
        (dict(a=(2, 3), b=(3, 4), c=("float16", (4,))), {}, "c is float16"),
    ],
)
def test_gemm_rejects(operands, arguments, message: str) -> None:
    with pytest.raises(TypeError, match=r"gemm \[here\].*" + message):
        _infer("gemm", _operands(**{"c": None, **operands}), **arguments)

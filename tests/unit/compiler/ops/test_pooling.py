"""Records of the pooling operators: shapes, errors, references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def infer(shape: tuple[int, ...], name: str = "max_pool2d", **arguments: Any) -> Any:
    record = OPERATORS[name]
    given = {p.name: arguments.get(p.name, p.default) for p in record.arguments}
    operand = MLOperandDescriptor(arguments.get("data_type", "float32"), shape)
    inferred = record.validate({"input": operand}, given, "mine")
    assert record.validate({"input": operand}, inferred.arguments) == inferred
    return inferred.outputs[0].shape


def compute(name: str, x: np.ndarray, **arguments: Any) -> np.ndarray:
    emit = Emitter()
    getattr(emit, name)(emit.constant(x), **arguments)
    return emit.nodes[0].evaluate(lambda value: value.data)[0]


def test_output_sizes() -> None:
    assert infer((1, 3, 4, 5)) == (1, 3, 1, 1)
    assert infer((1, 4, 5, 3), layout="nhwc") == (1, 1, 1, 3)
    window = {"window_dimensions": (3, 3)}
    assert infer((1, 3, 7, 7), **window, padding=(1, 0, 0, 1)) == (1, 3, 6, 6)
    assert infer((1, 3, 7, 7), **window, dilations=(2, 3)) == (1, 3, 3, 1)
    uneven = {**window, "strides": (3, 2)}
    assert infer((1, 3, 7, 8), **uneven) == (1, 3, 2, 3)
    assert infer((1, 3, 7, 8), **uneven, output_shape_rounding="ceil") == (1, 3, 3, 4)
    # output_sizes takes precedence over the rounding, and padding stays.
    assert infer((1, 3, 7, 8), **uneven, output_sizes=(3, 4)) == (1, 3, 3, 4)
    padded = {**uneven, "padding": (1, 0, 1, 1)}
    assert infer((1, 3, 7, 8), **padded, output_sizes=(2, 4)) == (1, 3, 2, 4)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"window_dimensions": (3,)}, r"window_dimensions \[3\] has 1 items; 2 are"),
        ({"window_dimensions": (0, 3)}, r"window_dimensions \[0, 3\]: 0 is not allowed"),
        ({"padding": (1, 1)}, "4 are expected"),
        ({"strides": (1, 0)}, r"strides \[1, 0\]: 0 is not allowed"),
        ({"strides": (1, 1, 1)}, "2 are expected"),
        ({"dilations": (0, 1)}, r"dilations \[0, 1\]: 0 is not allowed"),
        ({"window_dimensions": (8, 2)}, r"output would be \[0, 6\]"),
        ({"window_dimensions": (2, 2), "strides": (4, 4), "output_sizes": (2, 3)}, "output_sizes"),
        ({"window_dimensions": (2, 2), "output_sizes": (6,)}, "2 are expected"),
    ],
)
def test_errors(arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=rf"^max_pool2d \[mine\]: .*{message}"):
        infer((1, 3, 7, 7), **arguments)


def test_types_and_ranks() -> None:
    with pytest.raises(TypeError, match="rank has to be 4"):
        infer((1, 3, 7))
    with pytest.raises(TypeError, match="one of float32, float16"):
        infer((1, 3, 7, 7), "average_pool2d", data_type="int8")
    assert infer((1, 3, 7, 7), "max_pool2d", data_type="uint64") == (1, 3, 1, 1)


def test_hand_computed() -> None:
    x = np.arange(1, 10, dtype=np.float32).reshape(1, 1, 3, 3)
    window = {"window_dimensions": [2, 2]}
    assert compute("max_pool2d", x, **window)[0, 0].tolist() == [[5, 6], [8, 9]]
    assert compute("average_pool2d", x, **window)[0, 0].tolist() == [[3, 4], [6, 7]]
    own = compute("l2_pool2d", x, **window)[0, 0]
    assert_allclose(own, np.sqrt([[46, 74], [154, 206]]), rtol=1e-6)
    # Padding takes no part: the corners average fewer elements, negative maxima stay.
    padded = {**window, "padding": [1, 0, 1, 0], "strides": [2, 2]}
    assert compute("average_pool2d", x, **padded)[0, 0].tolist() == [[1, 2.5], [5.5, 7]]
    assert compute("max_pool2d", -x, **padded)[0, 0].tolist() == [[-1, -2], [-4, -5]]
    # With rounding up, the last window reaches beyond the input, or is entirely outside.
    up = {**window, "strides": [2, 2], "output_shape_rounding": "ceil"}
    assert compute("average_pool2d", x, **up)[0, 0].tolist() == [[3, 4.5], [7.5, 9]]
    outside = {"window_dimensions": [1, 1], "strides": [3, 3], "padding": [0, 1, 0, 1]}
    own = compute("max_pool2d", x, **outside, output_shape_rounding="ceil")[0, 0]
    assert own.tolist() == [[1, 0], [0, 0]]


def test_integers() -> None:
    x = np.array([[-128, -127], [-126, -125]], np.int8).reshape(1, 2, 2, 1)
    own = compute("max_pool2d", x, layout="nhwc", window_dimensions=[1, 2], padding=[0, 0, 1, 0])
    assert own.dtype == np.int8 and own[0, :, :, 0].tolist() == [[-128, -127], [-126, -125]]
    wide = np.array([2**63, 2**63 + 1], np.uint64).reshape(1, 1, 1, 2)
    assert compute("max_pool2d", wide).ravel().tolist() == [2**63 + 1]


@pytest.mark.parametrize("layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("name", ["average_pool2d", "l2_pool2d", "max_pool2d"])
def test_against_loops(name: str, layout: str) -> None:
    rng = np.random.default_rng(3)
    x = rng.uniform(-1, 1, (2, 3, 8, 9)).astype(np.float32)
    expected = np.zeros((2, 3, 4, 3), np.float32)
    for row, column in np.ndindex(4, 3):
        ys = [y for y in range(row * 2 - 1, row * 2 + 4, 2) if 0 <= y < 8]
        xs = [c for c in range(column * 3 - 2, column * 3 + 1) if 0 <= c < 9]
        part = x[:, :, ys][:, :, :, xs]
        expected[:, :, row, column] = {
            "average_pool2d": lambda p: p.mean(axis=(2, 3)),
            "l2_pool2d": lambda p: np.sqrt((p * p).sum(axis=(2, 3))),
            "max_pool2d": lambda p: p.max(axis=(2, 3)),
        }[name](part)
    if layout == "nhwc":
        x, expected = (np.ascontiguousarray(a.transpose(0, 2, 3, 1)) for a in (x, expected))
    own = compute(
        name, x, layout=layout, window_dimensions=[3, 3], padding=[1, 2, 2, 0], strides=[2, 3],
        dilations=[2, 1],
    )
    assert_allclose(own, expected, rtol=1e-6, atol=1e-7)


def test_windows_larger_than_the_output() -> None:
    x = np.random.default_rng(4).uniform(-1, 1, (1, 2, 50, 60)).astype(np.float32)
    own = compute("average_pool2d", x, window_dimensions=[49, 60])
    expected = np.stack([x[:, :, :49].mean(axis=(2, 3)), x[:, :, 1:].mean(axis=(2, 3))], axis=2)
    assert_allclose(own, expected[..., None], rtol=1e-5, atol=1e-7)
    assert compute("max_pool2d", x).ravel().tolist() == x.max(axis=(2, 3)).ravel().tolist()

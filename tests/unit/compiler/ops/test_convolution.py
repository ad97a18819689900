"""conv2d and conv_transpose2d: validation, shapes, and the references compared with plain loops."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def _infer(name: str, operands: dict, **arguments):
    operator = OPERATORS[name]
    given = {p.name: arguments.get(p.name, p.default) for p in operator.arguments}
    inferred = operator.validate({"bias": None, **operands}, given, "here")
    # The verifier infers again from the normal form.
    assert operator.validate({"bias": None, **operands}, dict(inferred.arguments)) == inferred
    return inferred


def _shape(name: str, x: tuple, w: tuple, **arguments) -> tuple:
    operands = {
        "input": MLOperandDescriptor("float32", x), "filter": MLOperandDescriptor("float32", w),
    }
    if "bias" in arguments:
        operands["bias"] = MLOperandDescriptor("float32", arguments.pop("bias"))
    return _infer(name, operands, **arguments).outputs[0].shape


def _compute(name: str, x: np.ndarray, w: np.ndarray, bias=None, **arguments) -> np.ndarray:
    arrays = {"input": x, "filter": w, "bias": bias}
    described = {
        n: None if a is None else MLOperandDescriptor(a.dtype.name, a.shape)
        for n, a in arrays.items()
    }
    inferred = _infer(name, described, **arguments)
    (result,) = OPERATORS[name].evaluate(inferred.outputs, arrays, inferred.arguments)
    return result


def _direct(x, w, padding, strides, dilations, groups, size) -> np.ndarray:
    """nchw by oihw, one output at a time."""
    outputs, inputs, rows, columns = w.shape
    result = np.zeros((x.shape[0], outputs, *size), np.float64)
    for n, o, oy, ox in np.ndindex(*result.shape):
        for i, ky, kx in np.ndindex(inputs, rows, columns):
            y = oy * strides[0] + ky * dilations[0] - padding[0]
            z = ox * strides[1] + kx * dilations[1] - padding[2]
            if 0 <= y < x.shape[2] and 0 <= z < x.shape[3]:
                channel = o // (outputs // groups) * inputs + i
                result[n, o, oy, ox] += x[n, channel, y, z] * w[o, i, ky, kx]
    return result


def _scattered(x, w, padding, strides, dilations, groups, size) -> np.ndarray:
    """nchw by iohw transposed, each input spread over the outputs."""
    inputs, per_group, rows, columns = w.shape
    result = np.zeros((x.shape[0], per_group * groups, *size), np.float64)
    for n, i, y, z in np.ndindex(*x.shape):
        for o, ky, kx in np.ndindex(per_group, rows, columns):
            oy = y * strides[0] + ky * dilations[0] - padding[0]
            ox = z * strides[1] + kx * dilations[1] - padding[2]
            if 0 <= oy < size[0] and 0 <= ox < size[1]:
                channel = i // (inputs // groups) * per_group + o
                result[n, channel, oy, ox] += x[n, i, y, z] * w[i, o, ky, kx]
    return result


PLAIN = ([0, 0, 0, 0], [1, 1], [1, 1], 1)
GEOMETRIES = [
    PLAIN,
    ([1, 2, 0, 1], [2, 1], [1, 1], 1),
    ([1, 1, 1, 1], [2, 3], [2, 1], 1),
    ([0, 1, 2, 0], [1, 2], [1, 2], 2),
    ([1, 1, 1, 1], [1, 1], [1, 1], 4),
]


@pytest.mark.parametrize(("padding", "strides", "dilations", "groups"), GEOMETRIES)
@pytest.mark.parametrize("input_layout", ["nchw", "nhwc"])
@pytest.mark.parametrize("filter_layout", ["oihw", "hwio", "ohwi", "ihwo"])
def test_conv2d(padding, strides, dilations, groups, input_layout, filter_layout) -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (2, 4, 6, 7)).astype(np.float32)
    w = rng.integers(-4, 5, (8, 4 // groups, 3, 2)).astype(np.float32)
    bias = rng.integers(-4, 5, 8).astype(np.float32)
    own = _compute(
        "conv2d", x.transpose(["nchw".index(d) for d in input_layout]),
        w.transpose(["oihw".index(d) for d in filter_layout]), bias, padding=tuple(padding),
        strides=tuple(strides), dilations=tuple(dilations), groups=groups,
        input_layout=input_layout, filter_layout=filter_layout,
    ).transpose([input_layout.index(d) for d in "nchw"])
    expected = _direct(x, w, padding, strides, dilations, groups, own.shape[2:])
    np.testing.assert_array_equal(own, expected + bias[:, None, None])


@pytest.mark.parametrize(("padding", "strides", "dilations", "groups"), GEOMETRIES)
@pytest.mark.parametrize("extra", ["none", "padding", "sizes"])
@pytest.mark.parametrize(
    "layouts", list(itertools.product(["nchw", "nhwc"], ["iohw", "hwoi", "ohwi"]))
)
def test_conv_transpose2d(padding, strides, dilations, groups, extra, layouts) -> None:
    input_layout, filter_layout = layouts
    rng = np.random.default_rng(0)
    x = rng.integers(-4, 5, (2, 4, 5, 4)).astype(np.float32)
    w = rng.integers(-4, 5, (4, 3, 3, 2)).astype(np.float32)
    bias = rng.integers(-4, 5, 3 * groups).astype(np.float32)
    smallest = [
        (x.shape[2 + i] - 1) * strides[i] + (w.shape[2 + i] - 1) * dilations[i] + 1
        - padding[2 * i] - padding[2 * i + 1]
        for i in range(2)
    ]
    options = {}
    size = smallest
    if extra != "none":
        size = [n + s - 1 for n, s in zip(smallest, strides, strict=True)]
        options = {"output_padding": tuple(s - 1 for s in strides)}
        if extra == "sizes":
            # With sizes given, the padding is not even checked.
            options = {"output_sizes": tuple(size), "output_padding": (9, 9)}
    own = _compute(
        "conv_transpose2d", x.transpose(["nchw".index(d) for d in input_layout]),
        w.transpose(["iohw".index(d) for d in filter_layout]), bias, padding=tuple(padding),
        strides=tuple(strides), dilations=tuple(dilations), groups=groups,
        input_layout=input_layout, filter_layout=filter_layout, **options,
    ).transpose([input_layout.index(d) for d in "nchw"])
    assert list(own.shape[2:]) == size
    expected = _scattered(x, w, padding, strides, dilations, groups, size)
    np.testing.assert_array_equal(own, expected + bias[:, None, None])


def test_large_inputs_are_unfolded_in_portions() -> None:
    """The sum over a constant window, wherever a portion ends."""
    x = np.arange(2 * 64 * 120 * 120, dtype=np.float32).reshape(2, 64, 120, 120) % 13
    w = np.ones((1, 64, 5, 5), np.float32)
    assert 64 * 25 * 116 * 116 * 4 > 2 * (32 << 20)
    own = _compute("conv2d", x, w)
    sums = np.pad(x.sum(1), ((0, 0), (1, 0), (1, 0))).cumsum(1).cumsum(2)
    expected = sums[:, 5:, 5:] - sums[:, :-5, 5:] - sums[:, 5:, :-5] + sums[:, :-5, :-5]
    np.testing.assert_array_equal(own[:, 0], expected)


@pytest.mark.parametrize(
    ("x", "w", "arguments", "shape"),
    [
        ((1, 1, 5, 5), (1, 1, 3, 3), {}, (1, 1, 3, 3)),
        ((1, 1, 5, 5), (1, 1, 3, 3), {"strides": (2, 3)}, (1, 1, 2, 1)),
        ((1, 1, 5, 5), (1, 1, 3, 3), {"dilations": (2, 2)}, (1, 1, 1, 1)),
        (
            (1, 3, 5, 4), (3, 3, 2, 8),
            {"input_layout": "nhwc", "filter_layout": "hwio", "groups": 2}, (1, 1, 3, 8),
        ),
        ((4, 1, 1, 1), (9, 1, 1, 1), {"padding": (0, 2, 1, 1)}, (4, 9, 3, 3)),
    ],
)
def test_conv2d_shapes(x, w, arguments, shape) -> None:
    assert _shape("conv2d", x, w, **arguments) == shape


def test_output_channels_divide_into_groups() -> None:
    with pytest.raises(TypeError, match="5 output channels do not divide into 2 groups"):
        _shape("conv2d", (1, 4, 5, 5), (5, 2, 3, 3), groups=2)


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("conv2d", {"padding": (1, 1)}, r"padding \[1, 1\] has 2 items; 4 are expected"),
        ("conv2d", {"strides": (1,)}, "strides .* 2 are expected"),
        ("conv2d", {"strides": (1, 0)}, "strides .*: 0 is not allowed"),
        ("conv2d", {"dilations": (0, 1)}, "dilations .*: 0 is not allowed"),
        ("conv2d", {"dilations": (1, 1, 1)}, "dilations .* 3 items"),
        ("conv2d", {"groups": 0}, "groups is 0"),
        ("conv2d", {"groups": 3}, "4 channels do not divide into 3 groups"),
        ("conv2d", {"groups": 2}, "the filter needs 2 input channels, not 4"),
        ("conv2d", {"bias": (3,)}, r"bias is float32\[3\]; shape \[4\] is expected"),
        ("conv2d", {"dilations": (3, 3)}, r"height and width \[-1, -1\]"),
        ("conv_transpose2d", {"output_padding": (1, 0)}, "has to be below strides"),
        ("conv_transpose2d", {"output_padding": (1,)}, "output_padding .* 2 are expected"),
        ("conv_transpose2d", {"output_sizes": (7,)}, "output_sizes .* 2 are expected"),
        ("conv_transpose2d", {"output_sizes": (7, 8)}, r"at least \[7, 7\]"),
        ("conv_transpose2d", {"output_sizes": (6, 7)}, r"at least \[7, 7\]"),
        ("conv_transpose2d", {"groups": 0}, "groups is 0"),
        ("conv_transpose2d", {"padding": (4, 4, 0, 0)}, r"height and width \[-1, 7\]"),
        ("conv_transpose2d", {"bias": (8,)}, r"bias is float32\[8\]"),
        ("conv_transpose2d", {"filter_layout": "ohwi"}, "4 input channels are expected .* not 3"),
    ],
)
def test_rejects(name: str, arguments: dict, message: str) -> None:
    with pytest.raises(TypeError, match=rf"{name} \[here\]: .*{message}"):
        _shape(name, (1, 4, 5, 5), (4, 4, 3, 3), **arguments)


@pytest.mark.parametrize(
    ("name", "input", "filter", "arguments", "hint"),
    [
        ("conv2d", (1, 3, 9, 9), (5, 5, 3, 16), {}, 'filter_layout="hwio" would fit'),
        ("conv2d", (1, 3, 9, 9), (3, 5, 5, 16), {}, 'filter_layout="ihwo" would fit'),
        ("conv2d", (1, 9, 9, 3), (16, 3, 5, 5), {}, 'input_layout="nhwc" would fit'),
        ("conv2d", (1, 3, 8, 8), (3, 3, 1, 3), {"groups": 3}, 'filter_layout="hwio" would fit'),
        ("conv_transpose2d", (1, 3, 9, 9), (5, 5, 16, 3), {},
         'filter_layout="hwoi" or filter_layout="ohwi" would fit'),
        ("conv2d", (1, 3, 9, 9), (5, 5, 4, 16), {}, None),
    ],
)
def test_a_layout_that_fits_is_named(name, input, filter, arguments, hint) -> None:
    with pytest.raises(TypeError) as caught:
        _shape(name, input, filter, **arguments)
    assert (hint in str(caught.value)) if hint else "would fit" not in str(caught.value)


def test_types() -> None:
    x = MLOperandDescriptor("int8", (1, 1, 3, 3))
    with pytest.raises(TypeError, match="input is int8.* has to be one of float32, float16"):
        _infer("conv2d", {"input": x, "filter": x})
    half = MLOperandDescriptor("float16", (1, 1, 3, 3))
    single = MLOperandDescriptor("float32", (1, 1, 3, 3))
    with pytest.raises(TypeError, match="input is float16, filter is float32"):
        _infer("conv2d", {"input": half, "filter": single})


def test_equal_filters_make_equal_channels():
    """For any number of channels and any sums: a softmax of large numbers would show differences.
    """
    rng = np.random.default_rng(1)
    x = rng.uniform(1e3, 1e4, (1, 512, 13, 13)).astype(np.float32)
    w = np.broadcast_to(rng.uniform(0.5, 1.5, (1, 512, 1, 1)).astype(np.float32), (1000, 512, 1, 1))
    emit = Emitter()
    y = emit.conv2d(emit.constant(x), emit.constant(w))
    (node,) = emit.nodes
    (made,) = node.evaluate(lambda v: v.data)
    assert y.shape == (1, 1000, 13, 13)
    assert (made == made[:, :1]).all()

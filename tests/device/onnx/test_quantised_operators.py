"""Operators on integers of 4 and 8 bits, ONNX's and ONNX Runtime's own, compared with ONNX Runtime.
"""

import ml_dtypes
import numpy as np
import pytest
from onnx import helper

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from tests.support.onnx_nodes import SIGNED_ZERO, SMALL, ZERO, Draws, Node, check, scale
from webnn_vk.onnx import Session, UnsupportedModelError

pytest.importorskip("onnxruntime")
DRAWS = Draws()
normal, byte, signed, integers = DRAWS.normal, DRAWS.byte, DRAWS.signed, DRAWS.integers

CASES = {
    "QLinearAveragePool": Node(
        "QLinearAveragePool", [byte(1, 3, 6, 6), SMALL, ZERO, scale(0.0173), ZERO],
        {"kernel_shape": [2, 2], "strides": [2, 2]}, bound=1,
    ),
    "MatMulNBits": Node(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 8), normal(12) * 0.1],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16}, bound=1e-4,
    ),
    "MatMulNBits with zero points": Node(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 8), normal(12) * 0.1, byte(6)],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16}, bound=1e-4,
    ),
    "QLinearAdd": Node(
        "QLinearAdd", [byte(2, 9), SMALL, ZERO, byte(2, 9), SMALL, ZERO, scale(0.05), ZERO], bound=1
    ),
    "QLinearMul": Node(
        "QLinearMul", [byte(2, 9), SMALL, ZERO, byte(2, 9), SMALL, ZERO, scale(0.05), ZERO], bound=1
    ),
    "QLinearSigmoid": Node(
        "QLinearSigmoid", [byte(2, 9), SMALL, ZERO, scale(1 / 256), np.array(0, np.uint8)], bound=1
    ),
    "QLinearLeakyRelu": Node(
        "QLinearLeakyRelu", [byte(2, 9), SMALL, ZERO, SMALL, ZERO], {"alpha": 0.1}, bound=1
    ),
    "QGemm": Node(
        "QGemm",
        [byte(2, 9), SMALL, ZERO, signed(9, 4), SMALL, SIGNED_ZERO, None, scale(0.1), ZERO],
        {}, bound=1,
    ),
    "MatMulIntegerToFloat": Node(
        "MatMulIntegerToFloat", [byte(3, 9), signed(9, 4), SMALL, SMALL, ZERO, SIGNED_ZERO]
    ),
    "QLinearConv": Node(
        "QLinearConv",
        [byte(1, 8, 6, 6), SMALL, ZERO, signed(4, 8, 3, 3), np.array([0.01, 0.02, 0.03, 0.02],
         np.float32), np.zeros(4, np.int8), scale(0.2), ZERO,
         integers(-999, 999, 4)],
        {"pads": [1, 1, 1, 1], "strides": [2, 2]}, domain="", bound=1,
    ),
    "QLinearMatMul": Node(
        "QLinearMatMul", [byte(3, 9), SMALL, ZERO, signed(9, 4), SMALL, SIGNED_ZERO, scale(0.1),
                          ZERO], domain="", bound=1,
    ),
    "MatMulInteger": Node("MatMulInteger", [byte(3, 700), signed(700, 4), ZERO], domain="",
                          bound=0),
    "ConvInteger": Node(
        "ConvInteger", [byte(1, 70, 5, 5), byte(3, 70, 3, 3), ZERO], domain="", bound=0
    ),
    "DynamicQuantizeLinear": Node("DynamicQuantizeLinear", [normal(5, 7)], {}, 3, "", 1),
    "DynamicQuantizeLSTM": Node(
        "DynamicQuantizeLSTM",
        [normal(3, 1, 4), signed(1, 4, 20), signed(1, 5, 20), normal(1, 40), None, None, None, None,
         np.array([0.01], np.float32), np.array([0], np.int8), np.array([0.01], np.float32),
         np.array([0], np.int8)],
        {"hidden_size": 5}, 3,
    ),
    "MatMulNBits, 8": Node(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 16), normal(12) * 0.1],
        {"K": 32, "N": 6, "bits": 8, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, odd": Node(
        "MatMulNBits",
        [normal(2, 40), byte(6, 3, 8), normal(18) * 0.1, byte(12)],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, bias": Node(
        "MatMulNBits",
        [normal(2, 3, 32), byte(6, 2, 8), normal(12) * 0.1, None, None, normal(6)],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, fzp": Node(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 8), normal(12) * 0.1, normal(12) + 8],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, gidx": Node(
        "MatMulNBits",
        [
            normal(2, 32),
            byte(6, 2, 8),
            normal(12) * 0.1,
            None,
            integers(0, 2, 32),
        ],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "QLinearConcat": Node(
        "QLinearConcat",
        [SMALL, ZERO, byte(2, 3), SMALL, ZERO, byte(2, 4), scale(0.03), np.array(100, np.uint8)],
        {"axis": 1},
        bound=1,
    ),
    "QLinearGlobalAveragePool, nhwc": Node(
        "QLinearGlobalAveragePool",
        [byte(1, 6, 6, 3), SMALL, ZERO, scale(0.0173), ZERO],
        {"channels_last": 1},
        bound=1,
    ),
    "QLinearAveragePool, nhwc": Node(
        "QLinearAveragePool",
        [byte(1, 6, 6, 3), SMALL, ZERO, scale(0.0173), ZERO],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "channels_last": 1},
        bound=1,
    ),
    "QLinearAveragePool, incl": Node(
        "QLinearAveragePool",
        [byte(1, 3, 6, 6), SMALL, ZERO, scale(0.0173), ZERO],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": 1},
        bound=1,
    ),
    "QLinearSoftmax": Node(
        "QLinearSoftmax",
        [byte(3, 9), SMALL, ZERO, scale(1 / 256), np.array(0, np.uint8)],
        {"axis": -1, "opset": 13},
        bound=1,
    ),
    "QLinearSoftmax, old": Node(
        "QLinearSoftmax",
        [byte(3, 4, 5), SMALL, ZERO, scale(1 / 256), np.array(0, np.uint8)],
        {"axis": 1, "opset": 12},
        bound=1,
    ),
    "QLinearWhere": Node(
        "QLinearWhere",
        [DRAWS.rng.random((2, 5)) < 0.5, byte(2, 5), SMALL, ZERO, byte(5), SMALL, ZERO, scale(0.03),
         ZERO],
        bound=1,
    ),
    "QLinearConv, nhwc": Node(
        "QLinearConv",
        [
            byte(1, 6, 6, 8),
            SMALL,
            ZERO,
            signed(4, 8, 3, 3),
            scale(0.01),
            SIGNED_ZERO * 0,
            scale(0.2),
            ZERO,
        ],
        {"channels_last": 1, "pads": [1] * 4},
        bound=1,
    ),
    "DynamicQuantizeMatMul": Node(
        "DynamicQuantizeMatMul",
        [
            normal(3, 9),
            signed(9, 4),
            np.array([0.02, 0.01, 0.03, 0.02], np.float32),
            np.array([1, 0, 2, 0], np.int8),
            normal(4),
        ],
        bound=1e-4,
    ),
    "MatMulIntegerToFloat, bias": Node(
        "MatMulIntegerToFloat",
        [
            byte(3, 9),
            signed(9, 4),
            SMALL,
            np.array([0.02, 0.01, 0.03, 0.02], np.float32),
            ZERO,
            np.array([1, 0, 2, 0], np.int8),
            normal(4),
        ],
    ),
    "QGemm, col": Node(
        "QGemm",
        [
            byte(2, 9),
            SMALL,
            ZERO,
            signed(4, 9),
            np.array([0.02, 0.01, 0.03, 0.02], np.float32),
            np.zeros(4, np.int8),
            integers(-99, 99, 4),
            scale(0.1),
            ZERO,
        ],
        {"transB": 1, "alpha": 1.0},
        bound=1,
    ),
    "QGemm, float": Node(
        "QGemm", [byte(2, 9), SMALL, ZERO, signed(9, 4), SMALL, SIGNED_ZERO, None], {}
    ),
    "GatherBlockQuantized": Node(
        "GatherBlockQuantized",
        [byte(6, 16), integers(0, 6, 2, 3), normal(6, 2)],
        {"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1},
    ),
    "QEmbedLayerNormalization": Node(
        "QEmbedLayerNormalization",
        [
            integers(0, 9, 2, 4),
            None,
            byte(9, 8),
            byte(6, 8),
            None,
            byte(8),
            byte(8),
            None,
            SMALL,
            SMALL,
            None,
            SMALL,
            SMALL,
            ZERO,
            ZERO,
            None,
            ZERO,
            ZERO,
        ],
        {},
        2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(context, name):
    check(CASES[name], context)


@pytest.mark.parametrize(("shape", "axis", "size"), [
    ((2, 9), 1, 4), ((7,), 0, 4), ((9,), -1, 4), ((5, 3), 0, 2), ((8,), 0, 4), ((2, 6), -1, 3),
])
def test_last_blocks_that_are_shorter(context, shape, axis, size):
    """Also where the length is a multiple of the number of blocks: 9 elements are 4, 4 and 1."""
    blocks = list(shape)
    blocks[axis] = -(-shape[axis] // size)
    scales = 2.0 ** integers(-3, 2, *blocks).astype(np.float32)
    zeros = signed(*blocks)
    where = {"axis": axis, "block_size": size}
    for operator, x in (("DequantizeLinear", signed(*shape)),
                        ("QuantizeLinear", 8 * normal(*shape))):
        check(Node(operator, [x, scales, zeros], where, domain="", bound=0, opset=21), context)


@pytest.mark.parametrize("shape", [(8, 3), (7, 3)])
def test_blocks_of_8_bit_floats(context, shape):
    """Weights; the scales are the input."""
    weights = normal(*shape).astype(ml_dtypes.float8_e4m3fn)
    scales = np.exp(normal(2, 3))
    proto = model(
        [helper.make_node("DequantizeLinear", ["w", "s"], ["y"], axis=0, block_size=4)],
        [info("s", (2, 3))], [info("y", shape)], {"w": weights}, opset=21,
    )
    (got,) = Session(proto, context).run(None, {"s": scales})
    expected = weights.astype(np.float32) * np.repeat(scales, 4, axis=0)[: shape[0]]
    assert_allclose(got, expected, rtol=1e-6)


def test_blocks_of_another_number(cpu_context):
    """Three scales are no blocks of 2 of 9 elements."""
    node = Node("DequantizeLinear", [signed(2, 9), np.ones((2, 3), np.float32)],
                {"axis": 1, "block_size": 2}, domain="", opset=21)
    with pytest.raises(UnsupportedModelError, match="3 scales for 5 blocks"):
        node.here(cpu_context)


@pytest.mark.parametrize(("direction", "batch", "lengths", "hidden", "kind"), [
    ("forward", 1, None, 16, np.int8),
    ("reverse", 1, None, 16, np.uint8),
    ("bidirectional", 3, [5, 3, 4], 16, np.int8),
    ("forward", 2, None, 260, np.uint8),
])
def test_states_rounded_at_each_step(context, direction, batch, lengths, hidden, kind):
    """As ONNX Runtime rounds them with one thread per sequence. The longest one is shorter than the
    input, whose remainder has no influence."""
    draws = Draws()
    normal, signed, uniform = draws.normal, draws.signed, draws.rng.uniform
    sides, steps, zero = 1 + (direction == "bidirectional"), 6, 0 if kind == np.int8 else 60
    x = normal(steps, batch, 8)
    x[5] *= 100 if lengths else 1
    w, r = ((signed(sides, n, 4 * hidden).astype(int) + zero).astype(kind) for n in (8, hidden))
    scales = [uniform(0.002, 0.006, (sides, 4 * hidden)).astype(np.float32) for _ in range(2)]
    zeros = np.full((sides, 4 * hidden), zero, kind)
    inputs = [
        x, w, r, normal(sides, 8 * hidden) * np.float32(0.3),
        None if lengths is None else np.array(lengths, np.int32),
        normal(sides, batch, hidden), normal(sides, batch, hidden), None,
        scales[0], zeros, scales[1], zeros,
    ]
    attributes = {"hidden_size": hidden, "direction": direction}
    node = Node("DynamicQuantizeLSTM", inputs, attributes, 3)
    got, expected = node.results(context, threads=batch)
    for side in range(sides):
        backward = side == 1 or direction == "reverse"
        for row, length in enumerate(lengths or [steps] * batch):
            # With a given input and state: no value lies nearly between two bytes.
            place = (length - 1 if backward else 0, side, row)
            assert_allclose(got[0][place], expected[0][place], rtol=0, atol=1e-5)
    for ours, theirs in zip(got, expected, strict=True):
        # The last bit of a state may lead to another byte.
        assert_allclose(ours, theirs, rtol=0, atol=2e-3)

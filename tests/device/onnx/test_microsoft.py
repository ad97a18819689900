"""ONNX Runtime's own operators (com.microsoft), and quantised models, against ONNX Runtime."""

import numpy as np
import pytest
from onnx import ValueInfoProto, helper

from tests.support.onnx_models import info, model
from webnn_vk.onnx import Session

ort = pytest.importorskip("onnxruntime")
RNG = np.random.default_rng(0)


def normal(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def same(operator, inputs, attributes=None, outputs=1, domain="com.microsoft", bound=1e-5):
    """A node on arrays (None for an input left out), the first an input, the others constants;
    ``bound`` is relative to the largest value, for integers absolute."""
    return operator, inputs, attributes or {}, outputs, domain, bound


def proto_of(operator, inputs, attributes, outputs, domain):
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    made = [f"o{i}" for i in range(outputs)]
    constants = {n: x for n, x in zip(names, inputs, strict=True) if n not in ("", "i0")}
    kind = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    return model(
        [helper.make_node(operator, names, made, domain=domain, **attributes)],
        [info("i0", inputs[0].shape, kind)], [ValueInfoProto(name=n) for n in made], constants,
        opset=17, microsoft=True,
    )


def scale(value):
    return np.array(value, np.float32)


def byte(*shape):
    return RNG.integers(0, 256, shape).astype(np.uint8)


def signed(*shape):
    # Seven bits: with eight, ONNX Runtime's sums of two products saturate on some processors.
    return RNG.integers(-64, 64, shape).astype(np.int8)


ZERO, SIGNED_ZERO = np.array(120, np.uint8), np.array(3, np.int8)
HALF = scale(0.02)
CASES = {
    "FastGelu": same("FastGelu", [normal(2, 5), normal(5)]),
    "BiasGelu": same("BiasGelu", [normal(2, 5), normal(5)]),
    "Gelu": same("Gelu", [normal(2, 5)]),
    "QuickGelu": same("QuickGelu", [normal(2, 5)]),
    "SkipLayerNormalization": same(
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)], {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": same(
        "SkipSimplifiedLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8)],
        {"epsilon": 1e-5},
    ),
    "FusedMatMul": same(
        "FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)],
        {"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    "FusedConv": same(
        "FusedConv", [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "Attention": same(
        "Attention", [normal(2, 4, 8), normal(8, 24), normal(24), np.array([3, 4], np.int32)],
        {"num_heads": 2},
    ),
    "Attention causal with past": same(
        "Attention", [normal(1, 3, 8), normal(8, 24), normal(24), None, normal(2, 1, 2, 2, 4)],
        {"num_heads": 2, "unidirectional": 1}, 2,
    ),
    "MultiHeadAttention": same(
        "MultiHeadAttention", [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), normal(24)],
        {"num_heads": 2},
    ),
    "RotaryEmbedding": same(
        "RotaryEmbedding",
        [normal(1, 3, 8), np.array([[0, 1, 2]]), normal(6, 2), normal(6, 2)], {"num_heads": 2},
    ),
    "GroupQueryAttention": same(
        "GroupQueryAttention",
        [normal(1, 3, 16), normal(1, 3, 8), normal(1, 3, 8), None, None, np.array([2], np.int32),
         np.array(3, np.int32)],
        {"num_heads": 2, "kv_num_heads": 1}, 3,
    ),
    "GroupQueryAttention, packed, rotary, with a past": same(
        "GroupQueryAttention",
        [normal(1, 1, 64), None, None, normal(1, 1, 5, 16), normal(1, 1, 5, 16),
         np.array([5], np.int32), np.array(6, np.int32), normal(9, 8), normal(9, 8)],
        {"num_heads": 2, "kv_num_heads": 1, "do_rotary": 1}, 3,
    ),
    "QLinearAveragePool": same(
        "QLinearAveragePool", [byte(1, 3, 6, 6), HALF, ZERO, scale(0.0173), ZERO],
        {"kernel_shape": [2, 2], "strides": [2, 2]}, bound=1,
    ),
    "MatMulNBits": same(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 8), normal(12) * 0.1],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16}, bound=1e-4,
    ),
    "MatMulNBits with zero points": same(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 8), normal(12) * 0.1, byte(6)],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16}, bound=1e-4,
    ),
    "QLinearAdd": same(
        "QLinearAdd", [byte(2, 9), HALF, ZERO, byte(2, 9), HALF, ZERO, scale(0.05), ZERO], bound=1
    ),
    "QLinearMul": same(
        "QLinearMul", [byte(2, 9), HALF, ZERO, byte(2, 9), HALF, ZERO, scale(0.05), ZERO], bound=1
    ),
    "QLinearSigmoid": same(
        "QLinearSigmoid", [byte(2, 9), HALF, ZERO, scale(1 / 256), np.array(0, np.uint8)], bound=1
    ),
    "QLinearLeakyRelu": same(
        "QLinearLeakyRelu", [byte(2, 9), HALF, ZERO, HALF, ZERO], {"alpha": 0.1}, bound=1
    ),
    "QGemm": same(
        "QGemm",
        [byte(2, 9), HALF, ZERO, signed(9, 4), HALF, SIGNED_ZERO, None, scale(0.1), ZERO],
        {}, bound=1,
    ),
    "QAttention": same(
        "QAttention",
        [byte(1, 4, 8), signed(8, 24), normal(24), HALF, HALF, None, ZERO, SIGNED_ZERO],
        {"num_heads": 2}, bound=1e-4,
    ),
    "MatMulIntegerToFloat": same(
        "MatMulIntegerToFloat", [byte(3, 9), signed(9, 4), HALF, HALF, ZERO, SIGNED_ZERO]
    ),
    "QLinearConv": same(
        "QLinearConv",
        [byte(1, 8, 6, 6), HALF, ZERO, signed(4, 8, 3, 3), np.array([0.01, 0.02, 0.03, 0.02],
         np.float32), np.zeros(4, np.int8), scale(0.2), ZERO,
         RNG.integers(-999, 999, 4).astype(np.int32)],
        {"pads": [1, 1, 1, 1], "strides": [2, 2]}, domain="", bound=1,
    ),
    "QLinearMatMul": same(
        "QLinearMatMul", [byte(3, 9), HALF, ZERO, signed(9, 4), HALF, SIGNED_ZERO, scale(0.1),
                          ZERO], domain="", bound=1,
    ),
    "MatMulInteger": same("MatMulInteger", [byte(3, 700), signed(700, 4), ZERO], domain="",
                          bound=0),
    "ConvInteger": same(
        "ConvInteger", [byte(1, 70, 5, 5), byte(3, 70, 3, 3), ZERO], domain="", bound=0
    ),
    "DynamicQuantizeLinear": same("DynamicQuantizeLinear", [normal(5, 7)], {}, 3, "", 1),
    "DynamicQuantizeLSTM": same(
        "DynamicQuantizeLSTM",
        [normal(3, 1, 4), signed(1, 4, 20), signed(1, 5, 20), normal(1, 40), None, None, None, None,
         np.array([0.01], np.float32), np.array([0], np.int8), np.array([0.01], np.float32),
         np.array([0], np.int8)],
        {"hidden_size": 5}, 3, bound=2e-2,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(context, name):
    operator, inputs, attributes, outputs, domain, bound = CASES[name]
    proto = proto_of(operator, inputs, attributes, outputs, domain)
    options = ort.SessionOptions()
    options.log_severity_level = 3
    runtime = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    feeds = {"i0": inputs[0]}
    expected = runtime.run(None, feeds)
    got = Session(proto, context).run(None, feeds)
    for a, b in zip(got, expected, strict=True):
        assert (a.dtype, a.shape) == (b.dtype, b.shape)
        error = np.abs(a.astype(np.float64) - b)
        # Bytes may differ by one where a value lies between two.
        limit = bound if a.dtype.kind in "iu" else bound * max(1e-30, np.abs(b).max())
        assert error.max() <= limit
        if a.dtype.kind in "iu":
            assert (error > 0).mean() <= 0.1

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
        {"hidden_size": 5}, 3,
    ),
}


def ones(*shape):
    """A mask of which every row sees something."""
    return (RNG.random(shape) < 0.6).astype(np.int32) | np.eye(*shape[-2:], dtype=np.int32)


MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)
# Forms of the same operators: masks, caches, shapes, activations, channels last.
CASES |= {
    "SkipLayerNormalization, bcast": same(
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(3, 8), normal(8), normal(8)],
        {"epsilon": 1e-5},
    ),
    "SkipLayerNormalization, bcast1 4out": same(
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(1, 3, 8), normal(8), None, normal(8)],
        {"epsilon": 1e-5},
    ),
    "Attention, 2d": same(
        "Attention", [normal(2, 4, 8), normal(8, 24), normal(24), MASK], {"num_heads": 2}
    ),
    "Attention, 2d uni": same(
        "Attention",
        [normal(2, 4, 8), normal(8, 24), normal(24), MASK],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "Attention, 3d": same(
        "Attention", [normal(2, 4, 8), normal(8, 24), normal(24), ones(2, 4, 4)], {"num_heads": 2}
    ),
    "Attention, 1d2": same(
        "Attention",
        [normal(2, 4, 8), normal(8, 24), normal(24), np.array([3, 4, 1, 0], np.int32)],
        {"num_heads": 2},
    ),
    "Attention, bias": same(
        "Attention",
        [normal(2, 4, 8), normal(8, 24), normal(24), None, None, normal(1, 2, 4, 4)],
        {"num_heads": 2},
    ),
    "Attention, sizes": same(
        "Attention",
        [normal(2, 4, 8), normal(8, 28), normal(28)],
        {"num_heads": 2, "qkv_hidden_sizes": [8, 8, 12]},
    ),
    "Attention, past2": same(
        "Attention",
        [
            normal(2, 3, 8),
            normal(8, 24),
            normal(24),
            np.array([[1] * 5, [1, 1, 1, 1, 0]], np.int32),
            normal(2, 2, 2, 2, 4),
        ],
        {"num_heads": 2, "unidirectional": 1},
        2,
    ),
    "MultiHeadAttention, MASK": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), None, MASK],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, mask1": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), None, np.array([3, 4], np.int32)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, mask3": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 4, 8), normal(2, 4, 8), None, ones(2, 3, 4)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, present": same(
        "MultiHeadAttention",
        [
            normal(2, 3, 8),
            normal(2, 3, 8),
            normal(2, 3, 8),
            normal(24),
            None,
            None,
            normal(2, 2, 5, 4),
            normal(2, 2, 5, 4),
        ],
        {"num_heads": 2},
        3,
    ),
    "MultiHeadAttention, cross": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 2, 4, 4), normal(2, 2, 4, 4), None],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, cross bias": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 2, 4, 4), normal(2, 2, 4, 4), normal(24)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, uni": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 8)],
        {"num_heads": 2, "unidirectional": 1},
    ),
    "MultiHeadAttention, abias": same(
        "MultiHeadAttention",
        [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 8), None, None, normal(2, 1, 3, 3)],
        {"num_heads": 2},
    ),
    "MultiHeadAttention, v differs": same(
        "MultiHeadAttention", [normal(2, 3, 8), normal(2, 3, 8), normal(2, 3, 12)], {"num_heads": 2}
    ),
    "RotaryEmbedding, interleaved": same(
        "RotaryEmbedding",
        [normal(2, 3, 16), np.array([[0, 1, 2], [4, 5, 3]]), normal(6, 4), normal(6, 4)],
        {"interleaved": 1},
    ),
    "RotaryEmbedding, offset": same(
        "RotaryEmbedding", [normal(2, 3, 16), np.array([2]), normal(6, 4), normal(6, 4)]
    ),
    "RotaryEmbedding, partial3": same(
        "RotaryEmbedding",
        [normal(2, 3, 32), np.array([[0, 1, 2], [4, 5, 3]]), normal(6, 4), normal(6, 4)],
        {"rotary_embedding_dim": 8, "num_heads": 2},
    ),
    "GroupQueryAttention, window": same(
        "GroupQueryAttention",
        [
            normal(1, 6, 16),
            normal(1, 6, 8),
            normal(1, 6, 8),
            None,
            None,
            np.array([5], np.int32),
            np.array(6, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 3},
        3,
    ),
    "GroupQueryAttention, window past": same(
        "GroupQueryAttention",
        [
            normal(1, 1, 16),
            normal(1, 1, 8),
            normal(1, 1, 8),
            normal(1, 1, 7, 8),
            normal(1, 1, 7, 8),
            np.array([7], np.int32),
            np.array(8, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "local_window_size": 3},
        3,
    ),
    "GroupQueryAttention, softcap": same(
        "GroupQueryAttention",
        [
            normal(1, 3, 16),
            normal(1, 3, 8),
            normal(1, 3, 8),
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "softcap": 2.0},
        3,
    ),
    "GroupQueryAttention, smooth": same(
        "GroupQueryAttention",
        [
            normal(1, 3, 16),
            normal(1, 3, 8),
            normal(1, 3, 8),
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1, "smooth_softmax": 1},
        3,
    ),
    "GroupQueryAttention, batch": same(
        "GroupQueryAttention",
        [
            normal(2, 3, 16),
            normal(2, 3, 8),
            normal(2, 3, 8),
            None,
            None,
            np.array([2, 2], np.int32),
            np.array(3, np.int32),
        ],
        {"num_heads": 2, "kv_num_heads": 1},
        3,
    ),
    "GroupQueryAttention, bias": same(
        "GroupQueryAttention",
        [
            normal(1, 3, 16),
            normal(1, 3, 8),
            normal(1, 3, 8),
            None,
            None,
            np.array([2], np.int32),
            np.array(3, np.int32),
            None,
            None,
            None,
            normal(1, 2, 3, 3),
        ],
        {"num_heads": 2, "kv_num_heads": 1},
        3,
    ),
    "MatMulNBits, 8": same(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 16), normal(12) * 0.1],
        {"K": 32, "N": 6, "bits": 8, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, odd": same(
        "MatMulNBits",
        [normal(2, 40), byte(6, 3, 8), normal(18) * 0.1, byte(12)],
        {"K": 40, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, bias": same(
        "MatMulNBits",
        [normal(2, 3, 32), byte(6, 2, 8), normal(12) * 0.1, None, None, normal(6)],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, fzp": same(
        "MatMulNBits",
        [normal(2, 32), byte(6, 2, 8), normal(12) * 0.1, normal(12) + 8],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "MatMulNBits, gidx": same(
        "MatMulNBits",
        [
            normal(2, 32),
            byte(6, 2, 8),
            normal(12) * 0.1,
            None,
            RNG.integers(0, 2, 32).astype(np.int32),
        ],
        {"K": 32, "N": 6, "bits": 4, "block_size": 16},
        bound=1e-4,
    ),
    "FusedConv, leaky": same(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1] * 4},
    ),
    "FusedConv, clip": same(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "Clip", "activation_params": [-0.5, 0.7], "pads": [1] * 4},
    ),
    "FusedConv, hs": same(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.4]},
    ),
    "FusedConv, sum": same(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4), normal(1, 4, 4, 4)],
        {"activation": "Relu"},
    ),
    "FusedConv, group": same(
        "FusedConv",
        [normal(1, 4, 6, 6), normal(4, 2, 3, 3)],
        {"activation": "Sigmoid", "group": 2, "strides": [2, 1], "dilations": [1, 2]},
    ),
    "FusedGemm": same(
        "FusedGemm",
        [normal(3, 4), normal(5, 4), normal(5)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    "QLinearConcat": same(
        "QLinearConcat",
        [HALF, ZERO, byte(2, 3), HALF, ZERO, byte(2, 4), scale(0.03), np.array(100, np.uint8)],
        {"axis": 1},
        bound=1,
    ),
    "QLinearGlobalAveragePool, nhwc": same(
        "QLinearGlobalAveragePool",
        [byte(1, 6, 6, 3), HALF, ZERO, scale(0.0173), ZERO],
        {"channels_last": 1},
        bound=1,
    ),
    "QLinearAveragePool, nhwc": same(
        "QLinearAveragePool",
        [byte(1, 6, 6, 3), HALF, ZERO, scale(0.0173), ZERO],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "channels_last": 1},
        bound=1,
    ),
    "QLinearAveragePool, incl": same(
        "QLinearAveragePool",
        [byte(1, 3, 6, 6), HALF, ZERO, scale(0.0173), ZERO],
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1] * 4, "count_include_pad": 1},
        bound=1,
    ),
    "QLinearSoftmax": same(
        "QLinearSoftmax",
        [byte(3, 9), HALF, ZERO, scale(1 / 256), np.array(0, np.uint8)],
        {"axis": -1, "opset": 13},
        bound=1,
    ),
    "QLinearSoftmax, old": same(
        "QLinearSoftmax",
        [byte(3, 4, 5), HALF, ZERO, scale(1 / 256), np.array(0, np.uint8)],
        {"axis": 1, "opset": 12},
        bound=1,
    ),
    "QLinearWhere": same(
        "QLinearWhere",
        [RNG.random((2, 5)) < 0.5, byte(2, 5), HALF, ZERO, byte(5), HALF, ZERO, scale(0.03), ZERO],
        bound=1,
    ),
    "QLinearConv, nhwc": same(
        "QLinearConv",
        [
            byte(1, 6, 6, 8),
            HALF,
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
    "NhwcMaxPool": same(
        "NhwcMaxPool", [byte(1, 6, 6, 3)], {"kernel_shape": [2, 2], "strides": [2, 2]}, bound=0
    ),
    "DynamicQuantizeMatMul": same(
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
    "MatMulIntegerToFloat, bias": same(
        "MatMulIntegerToFloat",
        [
            byte(3, 9),
            signed(9, 4),
            HALF,
            np.array([0.02, 0.01, 0.03, 0.02], np.float32),
            ZERO,
            np.array([1, 0, 2, 0], np.int8),
            normal(4),
        ],
    ),
    "QGemm, col": same(
        "QGemm",
        [
            byte(2, 9),
            HALF,
            ZERO,
            signed(4, 9),
            np.array([0.02, 0.01, 0.03, 0.02], np.float32),
            np.zeros(4, np.int8),
            RNG.integers(-99, 99, 4).astype(np.int32),
            scale(0.1),
            ZERO,
        ],
        {"transB": 1, "alpha": 1.0},
        bound=1,
    ),
    "QGemm, float": same(
        "QGemm", [byte(2, 9), HALF, ZERO, signed(9, 4), HALF, SIGNED_ZERO, None], {}
    ),
    "QAttention, mask": same(
        "QAttention",
        [
            byte(2, 4, 8),
            signed(8, 24),
            normal(24),
            HALF,
            HALF,
            np.array([3, 4], np.int32),
            ZERO,
            SIGNED_ZERO,
        ],
        {"num_heads": 2},
        bound=1e-4,
    ),
    "QAttention, MASK": same(
        "QAttention",
        [byte(2, 4, 8), signed(8, 24), normal(24), HALF, HALF, MASK, ZERO, SIGNED_ZERO],
        {"num_heads": 2, "unidirectional": 1},
        bound=1e-4,
    ),
    "QAttention, past": same(
        "QAttention",
        [
            byte(1, 3, 8),
            signed(8, 24),
            normal(24),
            HALF,
            HALF,
            None,
            ZERO,
            SIGNED_ZERO,
            normal(2, 1, 2, 2, 4),
        ],
        {"num_heads": 2, "unidirectional": 1},
        2,
        bound=1e-4,
    ),
    "EmbedLayerNormalization": same(
        "EmbedLayerNormalization",
        [
            RNG.integers(0, 9, (2, 4)).astype(np.int32),
            RNG.integers(0, 2, (2, 4)).astype(np.int32),
            normal(9, 8),
            normal(6, 8),
            normal(2, 8),
            normal(8),
            normal(8),
            MASK,
        ],
        {"epsilon": 1e-5},
        2,
    ),
    "EmbedLayerNormalization, pos": same(
        "EmbedLayerNormalization",
        [
            RNG.integers(0, 9, (2, 4)).astype(np.int32),
            None,
            normal(9, 8),
            normal(6, 8),
            None,
            normal(8),
            normal(8),
            None,
            np.array([[3, 2, 1, 0], [0, 1, 2, 3]], np.int32),
        ],
        {"epsilon": 1e-5},
        3,
    ),
    "GatherBlockQuantized": same(
        "GatherBlockQuantized",
        [byte(6, 16), RNG.integers(0, 6, (2, 3)), normal(6, 2)],
        {"block_size": 16, "bits": 4, "gather_axis": 0, "quantize_axis": 1},
    ),
    "Pad, ms": same(
        "Pad", [normal(2, 3), np.array([0, 1, 0, 2]), scale(0.5)], {"mode": "constant"}
    ),
    "GridSample": same(
        "GridSample", [normal(1, 1, 4, 4), normal(1, 3, 3, 2)], {"mode": "bilinear"}
    ),
    "ExpandDims": same("ExpandDims", [normal(2, 3), np.array(1, np.int32)]),
    "GatherND": same("GatherND", [normal(4, 3), np.array([[1], [0]])]),
    "CDist": same("CDist", [normal(4, 3), normal(5, 3)], {"metric": "euclidean"}),
    "CDist, squares": same("CDist", [normal(4, 3), normal(5, 3)], {"metric": "sqeuclidean"}),
    "Trilu": same("Trilu", [normal(3, 3), np.array(1)], {"upper": 0}),
    "QEmbedLayerNormalization": same(
        "QEmbedLayerNormalization",
        [
            RNG.integers(0, 9, (2, 4)).astype(np.int32),
            None,
            byte(9, 8),
            byte(6, 8),
            None,
            byte(8),
            byte(8),
            None,
            HALF,
            HALF,
            None,
            HALF,
            HALF,
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


@pytest.mark.sample(0.5)
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


@pytest.mark.parametrize("window", [-1, 3])
@pytest.mark.parametrize("interleaved", [0, 1])
def test_prompts_of_different_lengths(context, interleaved, window):
    """What is behind a shorter one's end changes nothing before it; what comes of it means
    nothing."""
    lengths = [6, 4, 1]
    inputs = [
        normal(3, 6, 64), normal(3, 6, 32), normal(3, 6, 32), None, None,
        np.array(lengths, np.int32) - 1, np.array(6, np.int32), normal(9, 8), normal(9, 8),
    ]
    attributes = {
        "num_heads": 4, "kv_num_heads": 2, "do_rotary": 1, "rotary_interleaved": interleaved,
        "local_window_size": window,
    }
    proto = proto_of("GroupQueryAttention", inputs, attributes, 3, "com.microsoft")
    runtime = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = runtime.run(None, {"i0": inputs[0]})
    got = Session(proto, context).run(None, {"i0": inputs[0]})
    for ours, theirs in zip(got, expected, strict=True):
        for row, length in enumerate(lengths):
            places = (row, slice(length)) if ours.ndim == 3 else (row, slice(None), slice(length))
            np.testing.assert_allclose(ours[places], theirs[places], rtol=1e-5, atol=1e-5)


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("attributes", [
    {"do_rotary": 1}, {"do_rotary": 1, "rotary_interleaved": 1, "local_window_size": 3},
    {"softcap": 2.0, "head_sink": 1}, {"causal": 0},
], ids=lambda attributes: ",".join(attributes))
@pytest.mark.parametrize(("steps", "buffer", "total", "lengths"), [
    (1, 5, 6, [6, 4, 1]),  # the cache grows
    (1, 8, 6, [6, 4, 1]),  # it is a buffer
    (1, 8, 8, [8]),
    (3, 8, 7, [7]),  # a later part of a prompt
    (3, 5, 8, [8]),
    (4, 8, 4, [4]),  # a first prompt, into a buffer
], ids=lambda value: "x".join(map(str, value)) if isinstance(value, list) else str(value))
def test_caches_of_different_lengths(context, steps, buffer, total, lengths, attributes):
    """``seqlens_k`` is an input: one graph serves all lengths."""
    batch, attributes = len(lengths), dict(attributes)
    sink = normal(4) if attributes.pop("head_sink", 0) else None
    inputs = [
        normal(batch, steps, 64), normal(batch, steps, 32), normal(batch, steps, 32),
        normal(batch, 2, buffer, 16), normal(batch, 2, buffer, 16), None,
        np.array(total, np.int32), normal(9, 8), normal(9, 8),
        None, normal(1, 4, steps, total), sink,
    ]
    names = [f"i{i}" if x is not None else "" for i, x in enumerate(inputs)]
    names[5] = "lengths"
    node = helper.make_node(
        "GroupQueryAttention", names, ["o0", "o1", "o2"], domain="com.microsoft", num_heads=4,
        kv_num_heads=2, **attributes,
    )
    proto = model(
        [node],
        [info("i0", inputs[0].shape, 1), info("lengths", [batch], 6)],
        [ValueInfoProto(name=name) for name in node.output],
        {n: x for n, x in zip(names[1:], inputs[1:], strict=True) if x is not None},
        opset=17, microsoft=True,
    )
    runtime = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    session = Session(proto, context)
    # Without steps of the sequence in its buffer there is nothing to attend to.
    for less in range(2 if steps == 1 and min(lengths) > 1 else 1):
        feeds = {"i0": inputs[0], "lengths": np.array(lengths, np.int32) - 1 - less}
        expected = runtime.run(None, feeds)
        for ours, theirs in zip(session.run(None, feeds), expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)
    assert len(session._graphs) == 1


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("direction", "batch", "lengths", "hidden", "kind"), [
    ("forward", 1, None, 16, np.int8),
    ("reverse", 1, None, 16, np.uint8),
    ("bidirectional", 3, [5, 3, 4], 16, np.int8),
    ("forward", 2, None, 260, np.uint8),
])
def test_states_rounded_at_each_step(context, direction, batch, lengths, hidden, kind):
    """As ONNX Runtime rounds them with a thread for each sequence. The longest one is shorter than
    the input, of which the rest decides nothing."""
    sides, steps, zero = 1 + (direction == "bidirectional"), 6, 0 if kind == np.int8 else 60
    x = normal(steps, batch, 8)
    x[5] *= 100 if lengths else 1
    w, r = ((signed(sides, n, 4 * hidden).astype(int) + zero).astype(kind) for n in (8, hidden))
    scales = [RNG.uniform(0.002, 0.006, (sides, 4 * hidden)).astype(np.float32) for _ in range(2)]
    zeros = np.full((sides, 4 * hidden), zero, kind)
    inputs = [
        x, w, r, normal(sides, 8 * hidden) * np.float32(0.3),
        None if lengths is None else np.array(lengths, np.int32),
        normal(sides, batch, hidden), normal(sides, batch, hidden), None,
        scales[0], zeros, scales[1], zeros,
    ]
    attributes = {"hidden_size": hidden, "direction": direction}
    proto = proto_of("DynamicQuantizeLSTM", inputs, attributes, 3, "com.microsoft")
    options = ort.SessionOptions()
    options.intra_op_num_threads = batch
    runtime = ort.InferenceSession(proto.SerializeToString(), options, ["CPUExecutionProvider"])
    expected = runtime.run(None, {"i0": x})
    got = Session(proto, context).run(None, {"i0": x})
    for side in range(sides):
        backward = side == 1 or direction == "reverse"
        for row, length in enumerate(lengths or [steps] * batch):
            # Of an input and a state that are given: nothing lies nearly between two bytes.
            place = (length - 1 if backward else 0, side, row)
            np.testing.assert_allclose(got[0][place], expected[0][place], rtol=0, atol=1e-5)
    for ours, theirs in zip(got, expected, strict=True):
        # The last bit of a state may decide for another byte.
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-3)

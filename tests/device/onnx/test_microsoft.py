"""ONNX Runtime's own operators (com.microsoft), compared with ONNX Runtime. Attention and integer
operators have their own files."""

import numpy as np
import pytest

from tests.support.onnx_nodes import Draws, Node, check, scale

pytest.importorskip("onnxruntime")
DRAWS = Draws()
normal, byte, integers = DRAWS.normal, DRAWS.byte, DRAWS.integers
MASK = np.array([[1, 1, 1, 0], [1, 1, 0, 0]], np.int32)

CASES = {
    "FastGelu": Node("FastGelu", [normal(2, 5), normal(5)]),
    "BiasGelu": Node("BiasGelu", [normal(2, 5), normal(5)]),
    "Gelu": Node("Gelu", [normal(2, 5)]),
    "QuickGelu": Node("QuickGelu", [normal(2, 5)]),
    "SkipLayerNormalization": Node(
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(2, 3, 8), normal(8), normal(8), normal(8)], {"epsilon": 1e-5},
    ),
    "SkipSimplifiedLayerNormalization": Node(
        "SkipSimplifiedLayerNormalization", [normal(2, 3, 8), normal(2, 3, 8), normal(8)],
        {"epsilon": 1e-5},
    ),
    "FusedMatMul": Node(
        "FusedMatMul", [normal(2, 4, 3), normal(2, 5, 4)],
        {"transA": 1, "transB": 1, "alpha": 0.5},
    ),
    "FusedConv": Node(
        "FusedConv", [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "Relu", "kernel_shape": [3, 3], "pads": [1, 1, 1, 1]},
    ),
    "SkipLayerNormalization, bcast": Node(
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(3, 8), normal(8), normal(8)],
        {"epsilon": 1e-5},
    ),
    "SkipLayerNormalization, bcast1 4out": Node(
        "SkipLayerNormalization",
        [normal(2, 3, 8), normal(1, 3, 8), normal(8), None, normal(8)],
        {"epsilon": 1e-5},
    ),
    "FusedConv, leaky": Node(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "LeakyRelu", "activation_params": [0.2], "pads": [1] * 4},
    ),
    "FusedConv, clip": Node(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "Clip", "activation_params": [-0.5, 0.7], "pads": [1] * 4},
    ),
    "FusedConv, hs": Node(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4)],
        {"activation": "HardSigmoid", "activation_params": [0.2, 0.4]},
    ),
    "FusedConv, sum": Node(
        "FusedConv",
        [normal(1, 3, 6, 6), normal(4, 3, 3, 3), normal(4), normal(1, 4, 4, 4)],
        {"activation": "Relu"},
    ),
    "FusedConv, group": Node(
        "FusedConv",
        [normal(1, 4, 6, 6), normal(4, 2, 3, 3)],
        {"activation": "Sigmoid", "group": 2, "strides": [2, 1], "dilations": [1, 2]},
    ),
    "FusedGemm": Node(
        "FusedGemm",
        [normal(3, 4), normal(5, 4), normal(5)],
        {"transB": 1, "activation": "LeakyRelu", "activation_alpha": 0.3},
    ),
    # As ONNX Runtime's optimiser saves them.
    **{
        f"FusedGemm, {name}": Node(
            "FusedGemm", [normal(3, 4), normal(4, 5)], {"activation": name, **{
                f"activation_{key}": value for key, value in parameters.items()
            }},
        )
        for name, parameters in {
            "Elu": {"alpha": 0.7}, "HardSigmoid": {"alpha": 0.3, "beta": 0.4},
            "Selu": {"alpha": 1.5, "gamma": 1.2}, "Softplus": {}, "Softsign": {},
            "ThresholdedRelu": {"alpha": 0.4},
        }.items()
    },
    "NhwcMaxPool": Node(
        "NhwcMaxPool", [byte(1, 6, 6, 3)], {"kernel_shape": [2, 2], "strides": [2, 2]}, bound=0
    ),
    "EmbedLayerNormalization": Node(
        "EmbedLayerNormalization",
        [
            integers(0, 9, 2, 4),
            integers(0, 2, 2, 4),
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
    "EmbedLayerNormalization, pos": Node(
        "EmbedLayerNormalization",
        [
            integers(0, 9, 2, 4),
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
    "Pad, ms": Node(
        "Pad", [normal(2, 3), np.array([0, 1, 0, 2]), scale(0.5)], {"mode": "constant"}
    ),
    "GridSample": Node(
        "GridSample", [normal(1, 1, 4, 4), normal(1, 3, 3, 2)], {"mode": "bilinear"}
    ),
    "ExpandDims": Node("ExpandDims", [normal(2, 3), np.array(1, np.int32)]),
    "GatherND": Node("GatherND", [normal(4, 3), np.array([[1], [0]])]),
    "CDist": Node("CDist", [normal(4, 3), normal(5, 3)], {"metric": "euclidean"}),
    "CDist, squares": Node("CDist", [normal(4, 3), normal(5, 3)], {"metric": "sqeuclidean"}),
    "Trilu": Node("Trilu", [normal(3, 3), np.array(1)], {"upper": 0}),
}


@pytest.mark.parametrize("name", CASES)
def test_operators(context, name):
    check(CASES[name], context)

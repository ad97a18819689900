"""Models that ONNX Runtime's quantiser made."""

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.support.onnx_models import info, model
from webnn_vk.onnx import Session

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")


class Images(quantization.CalibrationDataReader):
    def __init__(self, rng):
        self.left = [rng.normal(size=(1, 3, 12, 12)).astype(np.float32) for _ in range(4)]

    def get_next(self):
        return {"x": self.left.pop()} if self.left else None


def network(path, rng):
    node = helper.make_node
    constants = {
        "w1": rng.normal(size=(8, 3, 3, 3)).astype(np.float32),
        "b1": rng.normal(size=8).astype(np.float32),
        "w2": rng.normal(size=(8, 1, 3, 3)).astype(np.float32),
        "w3": rng.normal(size=(8, 5)).astype(np.float32),
    }
    nodes = [
        node("Conv", ["x", "w1", "b1"], ["c1"], "c1", pads=[1, 1, 1, 1]),
        node("Relu", ["c1"], ["r1"], "r1"),
        node("Conv", ["r1", "w2"], ["c2"], "c2", group=8, strides=[2, 2]),
        node("Sigmoid", ["c2"], ["s"], "s"),
        node("Mul", ["c2", "s"], ["m"], "m"),
        node("GlobalAveragePool", ["m"], ["g"], "g"),
        node("Flatten", ["g"], ["f"], "f"),
        node("MatMul", ["f", "w3"], ["y"], "y"),
    ]
    onnx.save(
        model(nodes, [info("x", [1, 3, 12, 12])], [info("y", [1, 5])], constants, opset=17), path
    )


@pytest.mark.parametrize("form", ["QDQ", "QOperator", "dynamic"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_quantised_models(context, tmp_path, form, per_channel, rng):
    plain, path = tmp_path / "plain.onnx", tmp_path / "quantised.onnx"
    network(plain, rng)
    if form == "dynamic":
        quantization.quantize_dynamic(plain, path, per_channel=per_channel, reduce_range=True)
    else:
        quantization.quantize_static(
            plain, path, Images(rng), quant_format=quantization.QuantFormat[form],
            per_channel=per_channel, reduce_range=True,
        )
    x = rng.normal(size=(1, 3, 12, 12)).astype(np.float32)
    expected = ort.InferenceSession(path).run(None, {"x": x})[0]
    got = Session(path, context).run(None, {"x": x})[0]
    # One step of the last quantisation, of 255 over the outputs' range.
    assert np.abs(got - expected).max() <= 2 / 255 * np.abs(expected).max()

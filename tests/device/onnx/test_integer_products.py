"""A quantised model on a GPU with integer dot products: compared with ONNX Runtime, computed by the
one kernel."""

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.device.compiler.kernels.test_integer_product import ACCELERATED
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from tests.support.running import device_profile
from webnn_vk.onnx import Session

ort = pytest.importorskip("onnxruntime")


def test_a_product_of_quantised_tensors(vulkan, tmp_path):
    """As quantisers write it: QuantizeLinear, DequantizeLinear, MatMul with per-channel weights."""
    features = device_profile().features
    if "integer_dot_product" not in features:
        pytest.skip("the device has no integer dot products")
    rng = np.random.default_rng(6)
    node = helper.make_node
    constants = {
        "scale": np.array(0.03125, np.float32), "zero": np.array(117, np.uint8),
        "integers": rng.integers(-127, 128, (45, 24)).astype(np.int8),
        "scales": rng.uniform(0.001, 0.01, 24).astype(np.float32), "zeros": np.zeros(24, np.int8),
        "bias": rng.uniform(-1, 1, 24).astype(np.float32),
    }
    nodes = [
        node("QuantizeLinear", ["x", "scale", "zero"], ["q"]),
        node("DequantizeLinear", ["q", "scale", "zero"], ["d"]),
        node("DequantizeLinear", ["integers", "scales", "zeros"], ["w"], axis=1),
        node("MatMul", ["d", "w"], ["p"]),
        node("Add", ["p", "bias"], ["s"]),
        node("Relu", ["s"], ["y"]),
    ]
    path = tmp_path / "model.onnx"
    onnx.save(
        model(nodes, [info("x", [2, 19, 45])], [info("y", [2, 19, 24])], constants, opset=17), path
    )
    x = rng.uniform(-3, 3, (2, 19, 45)).astype(np.float32)
    options = ort.SessionOptions()
    # Unchanged: its own integer kernels would round the activations differently.
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    expected = ort.InferenceSession(path, options).run(None, {"x": x})[0]
    limits = {"device_type": "discrete", "features": features | ACCELERATED}
    with open_context(limits=limits) as context:
        session = Session(path, context)
        (y,) = session.run(None, {"x": x})
        kernels = [step.kernel for step in session.graph({"x": x}).report().steps]
    assert_allclose(y, expected, rtol=1e-5, atol=1e-5)
    assert "matmul_dot" in kernels, kernels

"""PyTorch's attention with a boolean mask, fused and not, compared with ONNX Runtime: queries that
see nothing give 0."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.cases.exported_attention import exported, seen_by
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.forced import pretended_gpu
from tests.support.onnx_nodes import runtime
from tests.support.running import device_profile
from webnn_vk.onnx import Session


@pytest.mark.sample(0.34)
@pytest.mark.device
@pytest.mark.parametrize("mask", [(2, 1, 3, 5), (2, 8, 3, 5), (3, 5), (2, 1, 1, 5)])
@pytest.mark.parametrize(("exporter", "heads"), [("TorchScript", 8), ("dynamo", 4)])
def test_queries_that_see_nothing_give_zero(exporter, heads, mask):
    require_vulkan()
    # Each mask in one type with one exporter, and in the other type with the other.
    kind = (TensorProto.FLOAT, TensorProto.FLOAT16)[(mask[0] + mask[-2] + heads // 4) % 2]
    dtype, rng = helper.tensor_dtype_to_np_dtype(kind), np.random.default_rng(1)
    shapes = {"q": (2, 8, 3, 8), "k": (2, heads, 5, 8), "v": (2, heads, 5, 8)}
    feeds = {name: rng.normal(size=shape).astype(dtype) for name, shape in shapes.items()}
    feeds["seen"] = seen_by(mask).astype(bool)
    proto = exported(exporter, mask, kind, heads)
    expected = runtime(proto).run(None, feeds)[0].astype(np.float64)
    nothing = np.broadcast_to(~feeds["seen"].any(axis=-1), (2, 8, 3))
    close = 1e-5 if kind == TensorProto.FLOAT else 4e-3
    own = device_profile()
    gpu = pretended_gpu(own)
    for limits, skipped, fused in (
        ({}, (), not own.is_software), (gpu, (), True), (gpu, ("fuse_attention",), False)
    ):
        with open_context(limits=limits, skip_passes=skipped) as context:
            session = Session(proto, context)
            (result,) = session.run(None, feeds)
            steps = session.graph(feeds).report().steps
            operators = [o.split()[0] for step in steps for o in step.operators]
            assert ("attention" in operators) == fused
        assert (result[nothing] == 0).all() and (result[~nothing] != 0).any()
        assert_allclose(result.astype(np.float64), expected, rtol=close, atol=close)

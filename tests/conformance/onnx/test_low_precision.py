"""ONNX's backend cases of bfloat16, 8-bit floats and 4-bit integers, in contexts with
"low-precision": casts, quantisation and dequantisation, element for element."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.contexts import open_context
from tests.support.onnx_cases import cases
from tests.support.onnx_models import info, model
from webnn_vk.onnx import Session, UnsupportedModelError

NEW = {
    TensorProto.BFLOAT16, TensorProto.FLOAT8E4M3FN, TensorProto.FLOAT8E5M2, TensorProto.INT4,
    TensorProto.UINT4,
}
OPERATORS = {"Cast", "CastLike", "QuantizeLinear", "DequantizeLinear"}
#: Types that no draft has.
BEYOND = {
    getattr(TensorProto, name)
    for name in ("FLOAT8E4M3FNUZ", "FLOAT8E5M2FNUZ", "FLOAT4E2M1", "FLOAT8E8M0", "INT2", "UINT2")
    if hasattr(TensorProto, name)
}


def chosen():
    for case in cases("node"):
        graph = case.model.graph
        types = {v.type.tensor_type.elem_type for v in (*graph.input, *graph.output)}
        if types & NEW and not types & BEYOND and {n.op_type for n in graph.node} <= OPERATORS:
            yield case


@pytest.fixture(scope="module", params=["cpu", pytest.param("vulkan", marks=pytest.mark.device)])
def low(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(device=request.param, experimental=["low-precision"]) as context:
        yield context


def same(got, wanted):
    assert got.dtype == wanted.dtype and got.shape == wanted.shape
    a, b = got.astype(np.float64), wanted.astype(np.float64)
    np.testing.assert_array_equal(a, b)
    np.testing.assert_array_equal(np.signbit(a[~np.isnan(a)]), np.signbit(b[~np.isnan(b)]))


def test_every_case(low):
    wrong, count = {}, 0
    for case in chosen():
        names = [v.name for v in case.model.graph.input]
        for inputs, outputs in case.data():
            count += 1
            try:
                got = Session(case.model, low).run(None, dict(zip(names, inputs, strict=True)))
                for g, w in zip(got, outputs, strict=True):
                    same(g, w)
            except Exception as error:
                wrong[case.name] = f"{type(error).__name__}: {error}"[:300]
    assert wrong == {} and count >= 80


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("kind", ["float8_e4m3fn", "float8_e5m2"])
def test_numbers_that_are_too_large(low, kind, saturate):
    """Beside ml_dtypes, which doesn't saturate: numbers around the largest one."""
    target = np.dtype(getattr(ml_dtypes, kind))
    largest = float(ml_dtypes.finfo(target).max)
    near = np.nextafter(np.float32([464, 61440]), np.float32(0))
    x = np.float32([largest, 464, 464.0001, 480, 61439, 61440, 65536, 1e30, np.inf, 1, 0, *near])
    x = np.concatenate([x, -x, [np.nan]]).astype(np.float32)
    expected = x.astype(target)
    if saturate:
        kept = np.clip(x, -largest, largest)
        expected = kept.astype(target)
    to = helper.np_dtype_to_tensor_dtype(target)
    proto = model(
        [helper.make_node("Cast", ["x"], ["y"], to=to, saturate=saturate)],
        [info("x", ["n"])], [info("y", ["n"], to)],
    )
    (got,) = Session(proto, low).run(None, {"x": x})
    same(got, expected)


@pytest.mark.parametrize("kind", ["bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4"])
def test_elements_are_moved_and_stored(low, kind):
    dtype = np.dtype(getattr(ml_dtypes, kind))
    to = helper.np_dtype_to_tensor_dtype(dtype)
    x = np.arange(8).reshape(2, 4).astype(dtype)
    proto = model(
        [helper.make_node("Concat", ["x", "w"], ["c"], axis=0),
         helper.make_node("Transpose", ["c"], ["y"])],
        [info("x", ["n", 4], to)], [info("y", [4, None], to)], {"w": x[:1]},
    )
    (got,) = Session(proto, low).run(None, {"x": x})
    same(got, np.concatenate([x, x[:1]]).T)


def test_bfloat16_is_rounded_by_casts(low):
    proto = model(
        [helper.make_node("Cast", ["x"], ["b"], to=TensorProto.BFLOAT16),
         helper.make_node("Cast", ["b"], ["y"], to=TensorProto.FLOAT)],
        [info("x", ["n"])], [info("y", ["n"])],
    )
    x = np.float32([1.00390625, 1.01171875, -3.14159, 1e-40, np.inf])
    (got,) = Session(proto, low).run(None, {"x": x})
    same(got, x.astype(ml_dtypes.bfloat16).astype(np.float32))


def test_without_the_draft_the_types_are_refused(cpu_context):
    to = TensorProto.FLOAT8E4M3FN
    proto = model([helper.make_node("Cast", ["x"], ["y"], to=to)], [info("x", ["n"])],
                  [info("y", ["n"], to)])
    with pytest.raises(UnsupportedModelError, match="float8_e4m3fn would need"):
        Session(proto, cpu_context).run(None, {"x": np.ones(2, np.float32)})

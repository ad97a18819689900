"""Operators that stay on NumPy are wrong in ONNX Runtime, in some release, each for the given
reason."""

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

from tests.support.graphs import evaluate, graph_input, graph_of
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ir.onnx import fragment_of, model_of
from webnn_vk.runtime.engine_limits import HALVES_COMPARED, NUMPY_ONLY

HALVES = np.array([[-2, 2**32 - 1, 2**31, 7, -(2**32) - 7], [-(2**33) + 1, 3, 2**33, 5, 2**32]])
#: The releases since which it is right; about those from NEWEST on nothing is known.
MENDED_IN = {HALVES_COMPARED: (1, 32)}
NEWEST = (1, 33)
NAN = np.array([np.nan, 2, -1, 5, 0.5])
#: Unsigned numbers whose upper halves are equal once they are int64.
UNSIGNED = np.array([[2**32 - 1, 2**31 - 1], [1, 2**31 + 5], [2**31, 0], [2**32 - 2, 3]])


def exported(outputs, *inputs, **feeds):
    graph = graph_of(outputs[0], outputs[1], *inputs)
    model = model_of(fragment_of(graph), opset=21)
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    with np.errstate(all="ignore"):
        return session.run(None, feeds)[0], evaluate(graph, **feeds)["y"]


def wrong(name, data, *more, **arguments):
    """Whether ONNX Runtime's result of an operator is not the reference's."""
    emit = Emitter()
    x = graph_input("x", data.shape, data.dtype.name)
    inputs, feeds = [x], {"x": data}
    for i, array in enumerate(more):
        inputs.append(graph_input(f"x{i}", array.shape, array.dtype.name))
        feeds[f"x{i}"] = array
    y = getattr(emit, name)(*inputs, **arguments)
    got, expected = exported((emit, {"y": y}), *inputs, **feeds)
    return not np.array_equal(got, expected, equal_nan=got.dtype.kind == "f")


def sums(data_type):
    """Integers whose sums and products are beyond what the type or doubles hold."""
    limits, rng = np.iinfo(data_type), np.random.default_rng(0)
    for _ in range(3):
        yield rng.integers(limits.max // 2, limits.max, (5, 3), data_type, endpoint=True)
    if data_type == "uint32":
        for value in (limits.max, 2**16 - 1):
            yield np.full((2**22 + 1, 1), value, data_type)


CASES = {
    ("max", "int64"): lambda: wrong("max", np.repeat(HALVES, 5, 0), np.tile(HALVES, (5, 1))),
    ("min", "int64"): lambda: wrong("min", np.repeat(HALVES, 5, 0), np.tile(HALVES, (5, 1))),
    ("clamp", "int64"): lambda: wrong("clamp", HALVES, min_value=1, max_value=100),
    ("relu", "int64"): lambda: wrong("relu", HALVES),
    ("sign", "int64"): lambda: wrong("sign", HALVES),
    ("sign", "float16"): lambda: wrong("sign", NAN.astype("float16")),
    **{
        (name, data_type): lambda name=name, data_type=data_type: any(
            wrong(name, data.astype(data_type), axes=[axis])
            for data in (HALVES, UNSIGNED, UNSIGNED.T, np.roll(UNSIGNED, 1, 0))
            for axis in (0, 1)
        )
        for name in ("reduce_max", "reduce_min") for data_type in ("int64", "uint32", "uint64")
    },
    **{
        (name, data_type): lambda name=name, data_type=data_type: any(
            wrong(name, np.roll(NAN, place).astype(data_type), axes=[0])
            for place in range(NAN.size)
        )
        for name in ("reduce_max", "reduce_min") for data_type in ("float16", "float32")
    },
    **{
        (name, data_type): lambda name=name, data_type=data_type: any(
            wrong(name, data, axes=[0]) for data in sums(data_type)
        )
        for name in ("reduce_sum", "reduce_product", "reduce_l1", "reduce_sum_square")
        for data_type in ("int32", "uint32", "int64", "uint64")
    },
}


def test_every_entry_has_a_proof():
    listed = {(stay.operator, data_type) for stay in NUMPY_ONLY for data_type in stay.types}
    assert listed == set(CASES)
    assert {stay.operator for stay in NUMPY_ONLY if not stay.types} == {"scatter_nd"}


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_it_is_wrong(case):
    is_wrong = CASES[case]()
    version = tuple(int(number) for number in onnxruntime.__version__.split(".")[:2])
    reasons = [s.reason for s in NUMPY_ONLY if s.operator == case[0] and case[1] in s.types]
    mended = min(MENDED_IN.get(reason, NEWEST) for reason in reasons)
    if not is_wrong and version >= mended:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} gets it right; older ones are in use")
    assert is_wrong


def test_scatter_nd_promises_no_order():
    """ONNX itself says: with several updates of one place the output is undefined."""
    pytest.importorskip("onnx")
    said = " ".join(onnx.defs.get_schema("ScatterND", 21).doc.split())
    assert "should not have duplicate entries" in said

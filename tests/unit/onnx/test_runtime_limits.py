"""ONNX Runtime is wrong, in some release, where it is said to be, each for the given reason; and
the models that the CPU device makes for it compute the same operators correctly."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

from tests.support.graphs import evaluate, graph_input, graph_of
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ir.onnx import fragment_of, model_of
from webnn_vk.onnx.runtime_limits import HALVES_COMPARED, LIMITS

HALVES = np.array([[-2, 2**32 - 1, 2**31, 7, -(2**32) - 7], [-(2**33) + 1, 3, 2**33, 5, 2**32]])
#: The releases since which it is right; about those from NEWEST on nothing is known.
MENDED_IN = {HALVES_COMPARED: (1, 32)}
NEWEST = (1, 33)
NAN = np.array([np.nan, 2, -1, 5, 0.5])
#: Unsigned numbers whose upper halves are equal once they are int64.
UNSIGNED = np.array([[2**32 - 1, 2**31 - 1], [1, 2**31 + 5], [2**31, 0], [2**32 - 2, 3]])


@dataclass(frozen=True)
class Call:
    """An operator of one or more inputs."""

    name: str
    arrays: tuple[np.ndarray, ...]
    arguments: dict[str, Any] = field(default_factory=dict)

    @property
    def feeds(self) -> dict[str, np.ndarray]:
        return {f"x{i}": array for i, array in enumerate(self.arrays)}

    def graph(self) -> Any:
        emit = Emitter()
        inputs = [graph_input(name, x.shape, x.dtype.name) for name, x in self.feeds.items()]
        y = getattr(emit, self.name)(*inputs, **self.arguments)
        return graph_of(emit, {"y": y}, *inputs)

    def expected(self) -> np.ndarray:
        with np.errstate(all="ignore"):
            return evaluate(self.graph(), **self.feeds)["y"]

    def exported(self) -> np.ndarray:
        """ONNX Runtime's results for the exported model."""
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        session = onnxruntime.InferenceSession(
            model_of(fragment_of(self.graph()), opset=21).SerializeToString(), options,
            providers=["CPUExecutionProvider"],
        )
        return session.run(None, self.feeds)[0]

    def computed(self, context: Any) -> np.ndarray:
        """The result of a context whose CPU steps ONNX Runtime computes."""
        b = MLGraphBuilder(context)
        inputs = [
            b.input(name, {"data_type": x.dtype.name, "shape": list(x.shape)})
            for name, x in self.feeds.items()
        ]
        graph = b.build({"y": getattr(b, self.name)(*inputs, **self.arguments)}).result(60)
        assert {step.kernel for step in graph.report().steps} == {"onnxruntime"}, graph.report()
        return context.compute(graph, self.feeds)["y"]


def same(made: np.ndarray, expected: np.ndarray) -> bool:
    return np.array_equal(made, expected, equal_nan=made.dtype.kind == "f")


def sums(data_type):
    """Integers whose sums and products are beyond what the type or doubles hold."""
    limits, rng = np.iinfo(data_type), np.random.default_rng(0)
    for _ in range(3):
        yield rng.integers(limits.max // 2, limits.max, (5, 3), data_type, endpoint=True)
    if data_type == "uint32":
        for value in (limits.max, 2**16 - 1):
            yield np.full((2**22 + 1, 1), value, data_type)


def calls(kind: str, data_type: str) -> Iterator[Call]:
    """Calls of ONNX's operator ``kind``, of which ONNX Runtime gets some wrong."""
    name = NAMES[kind]
    if name in ("max", "min"):
        yield Call(name, (np.repeat(HALVES, 5, 0), np.tile(HALVES, (5, 1))))
    elif name == "clamp":
        yield Call(name, (HALVES,), {"min_value": 1, "max_value": 100})
        yield Call(name, (HALVES,), {"max_value": 2**40})
    elif name in ("relu", "sign"):
        yield Call(name, (NAN.astype(data_type) if data_type == "float16" else HALVES,))
    elif data_type.startswith("float"):
        for place in range(NAN.size):
            yield Call(name, (np.roll(NAN, place).astype(data_type),), {"axes": [0]})
    elif name in ("reduce_max", "reduce_min"):
        for data in (HALVES, UNSIGNED, UNSIGNED.T, np.roll(UNSIGNED, 1, 0)):
            for axis in (0, 1):
                yield Call(name, (data.astype(data_type),), {"axes": [axis]})
    else:
        for data in sums(data_type):
            yield Call(name, (data,), {"axes": [0]})


NAMES = {
    "Max": "max", "Min": "min", "Clip": "clamp", "Relu": "relu", "Sign": "sign",
    "ReduceMax": "reduce_max", "ReduceMin": "reduce_min", "ReduceSum": "reduce_sum",
    "ReduceProd": "reduce_product", "ReduceL1": "reduce_l1", "ReduceSumSquare": "reduce_sum_square",
}
CASES = [
    (kind, data_type) for limit in LIMITS for kind in limit.operators for data_type in limit.types
]


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_it_is_wrong(case):
    is_wrong = any(not same(call.exported(), call.expected()) for call in calls(*case))
    version = tuple(int(number) for number in onnxruntime.__version__.split(".")[:2])
    reasons = [x.reason for x in LIMITS if case[0] in x.operators and case[1] in x.types]
    mended = min(MENDED_IN.get(reason, NEWEST) for reason in reasons)
    if not is_wrong and version >= mended:
        pytest.skip(f"ONNX Runtime {onnxruntime.__version__} gets it right; older ones are in use")
    assert is_wrong


@pytest.mark.parametrize("case", CASES, ids="-".join)
def test_regions_compute_it_correctly(engine_context, case):
    for call in calls(*case):
        assert same(call.computed(engine_context), call.expected()), call


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("axes", [[0], [2], [0, 2], [2, 0], [1, 3], [0, 1, 2, 3]])
@pytest.mark.parametrize("kind", [k for k in NAMES if k.startswith("Reduce")])
def test_any_axes_are_reduced(engine_context, kind, axes, kept):
    data = np.random.default_rng(3).integers(-(2**62), 2**62, (3, 2, 5, 2))
    call = Call(NAMES[kind], (data,), {"axes": axes, "keep_dimensions": kept})
    made = call.computed(engine_context)
    assert made.shape == call.expected().shape
    assert same(made, call.expected())


@pytest.mark.parametrize("shape, depth", [((7,), 1), ((4, 3, 5), 1), ((4, 3, 5), 2), ((2, 3), 2)])
def test_the_last_of_several_updates_wins(engine_context, shape, depth):
    rng = np.random.default_rng(5)
    count = 400
    indices = np.stack([rng.integers(-n, n, (2, count // 2)) for n in shape[:depth]], axis=-1)
    updates = rng.standard_normal((2, count // 2, *shape[depth:])).astype(np.float32)
    call = Call("scatter_nd", (np.zeros(shape, np.float32), indices, updates))
    assert same(call.computed(engine_context), call.expected())


def test_scatter_nd_promises_no_order():
    """ONNX itself says: with several updates of one place the output is undefined."""
    pytest.importorskip("onnx")
    said = " ".join(onnx.defs.get_schema("ScatterND", 21).doc.split())
    assert "should not have duplicate entries" in said
    assert [limit.operators for limit in LIMITS if not limit.types] == [("ScatterND",)]

"""ONNX's own backend cases: where they are found, which of them WebNN has to pass, and how they
run."""

from __future__ import annotations

import functools
import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto, numpy_helper
from onnx.backend.test.loader import DATA_DIR, load_model_tests
from onnx.backend.test.runner import Runner
from onnx.reference import ReferenceEvaluator

SUITES = ("node", "simple", "pytorch-converted", "pytorch-operator", "light")
Arrays = list[Any]


@dataclass(frozen=True)
class Case:
    """A model with inputs and expected outputs. ``source`` is the model or its folder."""

    name: str
    suite: str
    source: Any
    rtol: float
    atol: float

    @functools.cached_property
    def model(self) -> ModelProto:
        if isinstance(self.source, Path):
            return onnx.load(self.source / "model.onnx" if self.suite != "light" else self.source)
        return self.source.model

    def data(self) -> Iterator[tuple[Arrays, Arrays]]:
        """Inputs and expected outputs."""
        if not isinstance(self.source, Path):
            for inputs, outputs in self.source.data_sets:
                yield [_plain(x) for x in inputs], [_plain(x) for x in outputs]
        elif self.suite == "light":
            initialised = {t.name for t in self.model.graph.initializer}
            yield (
                [_dummy(v) for v in self.model.graph.input if v.name not in initialised],
                [_read(self.source.with_name(self.source.stem + "_output_0.pb"))],
            )
        else:
            for folder in sorted(self.source.glob("test_data_set*")):
                yield tuple(  # type: ignore[misc]
                    [_read(p) for p in sorted(folder.glob(f"{kind}_*.pb"), key=_number)]
                    for kind in ("input", "output")
                )


def _number(path: Path) -> int:
    return int(path.stem.rsplit("_", 1)[1])


def _plain(value: Any) -> Any:
    match value:
        case TensorProto():
            return numpy_helper.to_array(value)
        case onnx.SequenceProto():
            return numpy_helper.to_list(value)
        case onnx.OptionalProto():
            return numpy_helper.to_optional(value)
    return value


def _read(path: Path) -> np.ndarray:
    return numpy_helper.to_array(TensorProto.FromString(path.read_bytes()))


def _dummy(info: Any) -> np.ndarray:
    """The input of the light models, as ONNX's runner makes it."""
    shape = tuple(d.dim_value or 1 for d in info.type.tensor_type.shape.dim)
    count = int(np.prod(shape))
    return (np.arange(count).reshape(shape) / count).astype(np.float32)


@functools.cache
def cases(suite: str) -> tuple[Case, ...]:
    """The cases of one suite, by name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(sorted(_load(suite), key=lambda case: case.name))


def _load(suite: str) -> Iterator[Case]:
    if suite == "node":
        for case in load_model_tests(kind="node"):
            yield Case(case.name, suite, case, case.rtol, case.atol)
    elif suite == "light":
        for path in Path(DATA_DIR, "light").glob("*.onnx"):
            data = Path(DATA_DIR, "real", f"test_{path.stem.removeprefix('light_')}", "data.json")
            bounds = json.loads(data.read_text()) if data.is_file() else {}
            yield Case(path.stem, suite, path, bounds.get("rtol", 1e-3), bounds.get("atol", 1e-7))
    else:
        for folder in Path(DATA_DIR, suite).iterdir():
            if (folder / "model.onnx").is_file():
                data = folder / "data.json"
                bounds = json.loads(data.read_text()) if data.is_file() else {}
                yield Case(
                    folder.name, suite, folder, bounds.get("rtol", 1e-3), bounds.get("atol", 1e-7)
                )


# -- the predicate ---------------------------------------------------------------------------------
TYPES = {
    "FLOAT", "FLOAT16", "INT32", "UINT32", "INT64", "UINT64", "INT8", "UINT8", "BOOL",
}
_OPERATORS = {
    "control flow": {"If", "Loop", "Scan"},
    "sequences": {
        "SequenceMap", "SequenceEmpty", "SequenceConstruct", "SequenceAt", "SequenceInsert",
        "SequenceErase", "SequenceLength", "SplitToSequence", "ConcatFromSequence",
    },
    "optional values": {"Optional", "OptionalGetElement", "OptionalHasElement"},
    "random numbers": {
        "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial",
        "Bernoulli",
    },
    "strings": {"StringNormalizer", "StringConcat", "StringSplit", "RegexFullMatch"},
    "image decoding": {"ImageDecoder"},
    "a shape that depends on values": {"NonZero", "Unique", "NonMaxSuppression"},
}
_FLOATS = {TensorProto.FLOAT, TensorProto.FLOAT16}
_TYPE_ATTRIBUTES = {"to", "dtype", "output_datatype", "output_dtype"}


def outside(case: Case) -> str | None:
    """Why a case is beyond WebNN, or None: decided by its operators, types and shapes."""
    graph = case.model.graph
    for info in (*graph.input, *graph.output):
        reason = _type_reason(info.type)
        if reason:
            return reason
    for node in _nodes(graph):
        reason = _node_reason(node, case)
        if reason:
            return reason
    for inputs, outputs in case.data():
        for x in (*inputs, *outputs):
            if isinstance(x, np.ndarray) and x.size == 0:
                return "a tensor without elements"
            if isinstance(x, np.ndarray) and x.ndim > 8:
                return "more than 8 dimensions"
    return None


def _type_reason(kind: Any) -> str | None:
    what = kind.WhichOneof("value")
    if what is None:
        return None
    if what != "tensor_type":
        return {"sequence_type": "sequences", "optional_type": "optional values"}.get(what, what)
    return _data_type_reason(kind.tensor_type.elem_type)


def _data_type_reason(number: int) -> str | None:
    name = TensorProto.DataType.Name(number)
    if name == "STRING":
        return "strings"
    return None if name in TYPES or number == 0 else f"data type {name.lower()}"


def _nodes(graph: GraphProto) -> Iterator[NodeProto]:
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            if attribute.type == AttributeProto.GRAPH:
                yield from _nodes(attribute.g)


def _node_reason(node: NodeProto, case: Case) -> str | None:
    if node.domain == "ai.onnx.preview.training":
        return "training"
    for reason, names in _OPERATORS.items():
        if not node.domain and node.op_type in names:
            return reason
    if node.op_type == "BitCast":
        from_type = next(
            v.type.tensor_type.elem_type for v in case.model.graph.input if v.name == node.input[0]
        )
        to = next(a.i for a in node.attribute if a.name == "to")
        if any(t in _FLOATS for t in (from_type, to)) and from_type != to:
            return "the bits of a float as a number"
    for attribute in node.attribute:
        if attribute.name in _TYPE_ATTRIBUTES and attribute.type == AttributeProto.INT:
            reason = _data_type_reason(attribute.i)
            if reason:
                return reason
        if attribute.name == "training_mode" and attribute.i:
            return "training"
    if node.op_type == "Dropout" and len(node.input) > 2 and node.input[2]:
        names = [v.name for v in case.model.graph.input]
        inputs, _ = next(iter(case.data()))
        if node.input[2] in names and bool(inputs[names.index(node.input[2])]):
            return "training"
    return None


# -- exact results ---------------------------------------------------------------------------------
def exact(case: Case) -> Iterator[tuple[Arrays, Arrays]]:
    """The expected outputs, and the double-precision results, of a model whose nodes compute with
    the inputs' types."""
    graph = case.model.graph
    model = ModelProto()
    model.CopyFrom(case.model)
    for info in (*model.graph.input, *model.graph.output):
        if info.type.tensor_type.elem_type in _FLOATS:
            info.type.tensor_type.elem_type = TensorProto.DOUBLE
    evaluator = ReferenceEvaluator(model)
    names = [v.name for v in graph.input]
    for inputs, expected in case.data():
        widened = [x.astype(np.float64) if x.dtype.kind == "f" else x for x in inputs]
        yield expected, evaluator.run(None, dict(zip(names, widened, strict=True)))


# -- running ---------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Outcome:
    """``kind``: "passed", "unsupported" (reported before anything was built), "wrong" or "error".
    """

    kind: str
    reason: str = ""


def run_onnxruntime(case: Case) -> Outcome:
    """Runs a case on ONNX Runtime itself, on the CPU."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(
        case.model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    try:
        for inputs, expected in case.data():
            names = [port.name for port in session.get_inputs()]
            got = session.run(None, dict(zip(names, inputs, strict=True)))
            Runner.assert_similar_outputs(expected, got, case.rtol, case.atol)
    except AssertionError as error:
        return Outcome("wrong", " ".join(str(error).split()))
    return Outcome("passed")


def run(case: Case) -> Outcome:
    """Runs a case through ``webnn_vk.onnx_backend``, on the device that it picks."""
    from webnn_vk import onnx_backend
    from webnn_vk.onnx import UnsupportedModelError

    try:
        prepared = onnx_backend.prepare(case.model)
        for inputs, expected in case.data():
            got = list(prepared.run(inputs))
            Runner.assert_similar_outputs(expected, got, case.rtol, case.atol)
    except UnsupportedModelError as error:
        return Outcome("unsupported", f"{error.problems[0].operator}: {error.problems[0].reason}")
    except AssertionError as error:
        return Outcome("wrong", " ".join(str(error).split()))
    except Exception as error:
        return Outcome("error", f"{type(error).__name__}: {error}")
    return Outcome("passed")

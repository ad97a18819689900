"""ONNX's own node cases with random changes: attributes, inputs, types, shapes, domains, opsets.
Whatever is wrong, a refusal is one of the importer's two errors."""

from __future__ import annotations

import copy
import random

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import AttributeProto, ModelProto, helper, numpy_helper

from tests.support.onnx_cases import cases
from webnn_vk.api.builder import ShapeBuilder, constant_of
from webnn_vk.onnx import InvalidModelError, UnsupportedModelError, requirements
from webnn_vk.onnx.convert import Conversion
from webnn_vk.onnx.importing import convert
from webnn_vk.onnx.reading import read_model

NUMBERS = [0, 1, -1, 2, 3, 7, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)]
FLOATS = [float("nan"), float("inf"), -1.0, 0.0, 1e38]
TEXTS = [b"", b"\xff\xfe", b"nope", b"reflect", b"linear"]
KINDS = [0, *range(1, 25), 99]
OPSETS = [0, 1, 7, 9, 11, 13, 18, 23, 99, -1, 2**62]


def attribute(rng: random.Random, model: ModelProto, names: list[str]) -> None:
    node = rng.choice(model.graph.node)
    if not node.attribute:
        return
    chosen = rng.choice(node.attribute)
    match rng.choice(["value", "value", "type", "gone"]), chosen.type:
        case "gone", _:
            node.attribute.remove(chosen)
        case "type", _:
            chosen.type = rng.choice([0, 1, 2, 3, 4, 5, 6, 7, 8, 11, 13])
        case _, AttributeProto.INT:
            chosen.i = rng.choice(NUMBERS)
        case _, AttributeProto.INTS:
            chosen.ints[:] = rng.choices(NUMBERS, k=rng.randrange(5))
        case _, AttributeProto.FLOAT:
            chosen.f = rng.choice(FLOATS)
        case _, AttributeProto.FLOATS:
            chosen.floats[:] = rng.choices(FLOATS, k=rng.randrange(4))
        case _, AttributeProto.STRING:
            chosen.s = rng.choice(TEXTS)


def operands(rng: random.Random, model: ModelProto, names: list[str]) -> None:
    node = rng.choice(model.graph.node)
    at = rng.randrange(len(node.input)) if node.input else None
    match rng.choice(["gone", "absent", "more", "result", "operator", "domain"]):
        case "gone" if at is not None:
            del node.input[at]
        case "absent" if at is not None:
            node.input[at] = ""
        case "more" if at is not None:
            node.input.append(node.input[at])
        case "result":
            node.output.append("another")
        case "operator":
            node.op_type = rng.choice(names)
        case "domain":
            node.domain = rng.choice(["", "com.microsoft", "ai.onnx.ml", "own"])


def port(rng: random.Random, model: ModelProto, names: list[str]) -> None:
    chosen = rng.choice([*model.graph.input, *model.graph.output])
    tensor = chosen.type.tensor_type
    match rng.choice(["type", "length", "less", "more", "untyped", "opset"]):
        case "type":
            tensor.elem_type = rng.choice(KINDS)
        case "length" if tensor.shape.dim:
            rng.choice(tensor.shape.dim).dim_value = rng.choice(NUMBERS)
        case "less" if tensor.shape.dim:
            del tensor.shape.dim[-1]
        case "more":
            tensor.shape.dim.add().dim_value = rng.choice(NUMBERS)
        case "untyped":
            chosen.ClearField("type")
        case "opset":
            model.opset_import[0].version = rng.choice(OPSETS)


def value(rng: random.Random, model: ModelProto, names: list[str]) -> None:
    """An input becomes a constant of odd numbers, sometimes with dimensions that don't fit its
    bytes."""
    if not model.graph.input:
        return
    chosen = rng.choice(model.graph.input)
    shape = [d.dim_value for d in chosen.type.tensor_type.shape.dim]
    try:
        kind = helper.tensor_dtype_to_np_dtype(chosen.type.tensor_type.elem_type)
    except KeyError:
        return
    if kind.kind not in "iufb" or not all(0 <= n <= 64 for n in shape):
        return
    count = int(np.prod(shape))
    if kind.kind == "f":
        array = np.array(rng.choices(FLOATS, k=count)).astype(kind)
    else:
        wide = np.array([n & 2**64 - 1 for n in rng.choices(NUMBERS, k=count)], np.uint64)
        array = wide.astype(kind)
    tensor = numpy_helper.from_array(array.reshape(shape), chosen.name)
    if rng.random() < 0.2:
        tensor.dims[:] = [rng.choice(NUMBERS)]
    model.graph.initializer.append(tensor)
    model.graph.input.remove(chosen)


@pytest.mark.full
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_mutated_models():
    seeds = [case.model for case in cases("node")]
    seeds = [model for model in seeds if model is not None and model.graph.node]
    names = sorted({model.graph.node[0].op_type for model in seeds})
    ends = {"taken": 0, "refused": 0}

    @settings(suppress_health_check=list(HealthCheck))
    @given(st.integers(0, 2**64))
    def check(seed: int) -> None:
        rng = random.Random(seed)
        # Several per seed: each takes a few milliseconds.
        for _ in range(10):
            model = copy.deepcopy(rng.choice(seeds))
            for _ in range(rng.randint(1, 3)):
                rng.choice([attribute, attribute, operands, operands, port, value])(
                    rng, model, names
                )
            try:
                if rng.random() < 0.2:
                    requirements(model)
                else:
                    convert(Conversion(read_model(model), ShapeBuilder(), constant_of), {}, None)
                ends["taken"] += 1
            except InvalidModelError as error:
                assert str(error).isprintable() and len(str(error)) < 1000
                ends["refused"] += 1
            except UnsupportedModelError as error:
                assert all(str(p).isprintable() and len(str(p)) < 2000 for p in error.problems)
                ends["refused"] += 1

    check()
    assert min(ends.values()) > 20

"""Hostile numbers in attributes, and in constants that are counts, lengths, axes and sizes: refused
in one line that names the node, or accepted, never with much memory."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from tests.support.onnx_models import info, model
from webnn_vk.api.builder import ShapeBuilder, constant_of
from webnn_vk.onnx import InvalidModelError, UnsupportedModelError
from webnn_vk.onnx.convert import Conversion
from webnn_vk.onnx.importing import convert
from webnn_vk.onnx.reading import read_model

NUMBERS = [0, -1, -5, 10**9, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1, -(2**63)]
FLOATS = [np.nan, np.inf, -np.inf, -1.0, 0.0, 1e30, 1e-30]
#: Messages of Python and NumPy, which don't know the model.
RIDDLE = re.compile(
    r"^(integer |float )?(division|modulo)|^(list |tuple |pop )?index out|^zip\(\)|^cannot |"
    r"^negative |^math domain|^not enough|^too many values|^unsupported operand|"
    r"is expected, not ndarray"
)
LONG, INT8 = TensorProto.INT64, TensorProto.INT8
node = helper.make_node
IMAGE, FILTER = [1, 1, 4, 4], [1, 1, 2, 2]

#: Nodes that make y, shapes of inputs, constants, opset and types of inputs.
Case = tuple[list[NodeProto], dict[str, list[int]], dict[str, Any], int, dict[str, int]]


def case(
    nodes: Any, x: Any = (4,), opset: int = 18, types: dict[str, int] | None = None,
    also: dict[str, list[int]] | None = None, **constants: Any,
) -> Case:
    made = nodes if isinstance(nodes, list) else [nodes]
    arrays = {name: np.asarray(value) for name, value in constants.items()}
    return made, {"x": list(x), **(also or {})}, arrays, opset, types or {}


def body(copied: bool) -> Any:
    """For a loop, or for a scan."""
    if copied:
        return helper.make_graph(
            [node("Identity", ["c"], ["d"]), node("Neg", ["v"], ["w"])], "body",
            [info("i", [], LONG), info("c", [], TensorProto.BOOL), info("v", [4])],
            [info("d", [], TensorProto.BOOL), info("w", [4])],
        )
    return helper.make_graph(
        [node("Add", ["s", "e"], ["t"]), node("Neg", ["e"], ["f"])], "body",
        [info("s", [4]), info("e", [4])], [info("t", [4]), info("f", [4])],
    )


def sequence(last: NodeProto, h: int) -> Case:
    return case([node("SequenceConstruct", ["x", "x"], ["q"]), last,
                 node("SequenceAt", ["r", "zero"], ["y"])], i=h, zero=0)


def resized(h: int, **attributes: Any) -> Case:
    return case(node("Resize", ["x", "", "", "s"], ["y"], **attributes), FILTER, s=[1, 1, h, 2])


def windowed(operator: str, name: str, h: int, short: bool = False) -> Case:
    numbers = [h] if short else [h, 1, 1, 1] if name == "pads" else [h, 1]
    given = {"kernel_shape": [2, 2]} | {name: numbers}
    if operator.startswith("Conv"):
        return case(node(operator, ["x", "w"], ["y"], **given), IMAGE, w=np.ones(FILTER, "f"))
    return case(node(operator, ["x"], ["y"], **given), IMAGE)


WINDOWS: dict[str, Callable[[int], Case]] = {
    f"{operator} {name}{' too few' * short}": (
        lambda h, operator=operator, name=name, short=short: windowed(operator, name, h, short)
    )
    for operator in ("Conv", "ConvTranspose", "MaxPool", "AveragePool", "LpPool")
    for name in ("strides", "dilations", "pads", "kernel_shape") for short in (False, True)
}
HOSTILE: dict[str, Callable[[int], Case]] = {
    "Split": lambda h: case(node("Split", ["x"], ["y", "z"], num_outputs=h)),
    "Split of one": lambda h: case(node("Split", ["x"], ["y"], num_outputs=h)),
    "Split of a constant": lambda h: case(node("Split", ["k"], ["y"], num_outputs=h), k=[1.0, 2]),
    "Split, lengths": lambda h: case(node("Split", ["x", "s"], ["y", "z"]), s=[h, 1]),
    "Split, axis": lambda h: case(node("Split", ["x"], ["y", "z"], axis=h, num_outputs=2)),
    "Tile": lambda h: case(node("Tile", ["x", "s"], ["y"]), s=[h]),
    "Tile of a constant": lambda h: case(node("Tile", ["k", "s"], ["y"]), s=[h], k=[1.0]),
    "Expand": lambda h: case(node("Expand", ["x", "s"], ["y"]), [1], s=[h]),
    "Expand of a constant": lambda h: case(node("Expand", ["k", "s"], ["y"]), s=[h, 3], k=[1.0]),
    "ConstantOfShape": lambda h: case(node("ConstantOfShape", ["s"], ["y"]), s=[h, 3]),
    "Range": lambda h: case(node("Range", ["a", "s", "b"], ["y"]), a=0, s=h, b=1),
    "Range, step": lambda h: case(node("Range", ["a", "b", "s"], ["y"]), a=0, s=h, b=10),
    "OneHot": lambda h: case(node("OneHot", ["x", "d", "v"], ["y"]), d=h, v=[0.0, 1],
                             types={"x": LONG}),
    "OneHot of a constant": lambda h: case(
        node("OneHot", ["i", "d", "v"], ["y"]), d=h, v=[0.0, 1], i=[1, 2]),
    "Pad": lambda h: case(node("Pad", ["x", "p"], ["y"]), p=[h, 0]),
    "Pad, reflected": lambda h: case(node("Pad", ["x", "p"], ["y"], mode="reflect"), p=[h, 0]),
    "Pad, around": lambda h: case(node("Pad", ["x", "p"], ["y"], mode="wrap"), p=[h, 0]),
    "Upsample": lambda h: case(node("Upsample", ["x", "s"], ["y"]), FILTER, 9,
                               s=np.array([1, 1, h, 1], "f")),
    "Resize": lambda h: resized(h),
    "Resize, linear": lambda h: resized(h, mode="linear"),
    "Resize, antialias": lambda h: resized(h, mode="cubic", antialias=1),
    "Resize, aspect": lambda h: resized(h, keep_aspect_ratio_policy="not_larger"),
    "TfIdfVectorizer": lambda h: case(node(
        "TfIdfVectorizer", ["x"], ["y"], max_gram_length=1, min_gram_length=1, max_skip_count=0,
        mode="TF", ngram_counts=[0], ngram_indexes=[h], pool_int64s=[3]), types={"x": LONG}),
    "Loop": lambda h: case(node("Loop", ["n", "t", "x"], ["y"], body=body(True)), n=h, t=True),
    "Scan, axis": lambda h: case(
        node("Scan", ["x", "w"], ["y", "z"], body=body(False), num_scan_inputs=1,
             scan_input_axes=[h]), also={"w": [3, 4]}),
    "Scan, inputs": lambda h: case(
        node("Scan", ["x", "w"], ["y", "z"], body=body(False), num_scan_inputs=h),
        also={"w": [3, 4]}),
    "EyeLike": lambda h: case(node("EyeLike", ["x"], ["y"], k=h), [3, 3]),
    "Trilu": lambda h: case(node("Trilu", ["x", "k"], ["y"]), [3, 3], k=h),
    "Concat": lambda h: case(node("Concat", ["x", "x"], ["y"], axis=h)),
    "SequenceAt": lambda h: case(
        [node("SequenceConstruct", ["x", "x"], ["q"]), node("SequenceAt", ["q", "i"], ["y"])],
        i=h),
    "SequenceErase": lambda h: sequence(node("SequenceErase", ["q", "i"], ["r"]), h),
    "SequenceInsert": lambda h: sequence(node("SequenceInsert", ["q", "x", "i"], ["r"]), h),
    "SplitToSequence": lambda h: case(
        [node("SplitToSequence", ["x", "s"], ["q"]), node("SequenceAt", ["q", "i"], ["y"])],
        s=h, i=0),
    "TopK": lambda h: case(node("TopK", ["x", "k"], ["y", "z"]), k=[h]),
    "Slice, step": lambda h: case(
        node("Slice", ["x", "a", "b", "i", "s"], ["y"]), a=[3], b=[-9], i=[0], s=[h]),
    "GatherND": lambda h: case(node("GatherND", ["x", "i"], ["y"], batch_dims=h), i=[0]),
    "Reshape": lambda h: case(node("Reshape", ["x", "s"], ["y"]), s=[h, 1]),
    "Flatten": lambda h: case(node("Flatten", ["x"], ["y"], axis=h)),
    "Transpose": lambda h: case(node("Transpose", ["x"], ["y"], perm=[h, 0]), [4, 1]),
    "DepthToSpace": lambda h: case(node("DepthToSpace", ["x"], ["y"], blocksize=h), [1, 4, 2, 2]),
    "HannWindow": lambda h: case(node("HannWindow", ["s"], ["y"]), s=h),
    "GroupNormalization": lambda h: case(
        node("GroupNormalization", ["x", "s", "s"], ["y"], num_groups=h), [1, 4, 2], 21,
        s=np.ones(4, "f")),
    "Conv, groups": lambda h: case(
        node("Conv", ["x", "w"], ["y"], group=h), IMAGE, w=np.ones(FILTER, "f")),
    "ConvTranspose, size": lambda h: case(
        node("ConvTranspose", ["x", "w"], ["y"], output_shape=[h, 8]), IMAGE,
        w=np.ones(FILTER, "f")),
    "MaxUnpool": lambda h: case(
        node("MaxUnpool", ["x", "i"], ["y"], kernel_shape=[h, 2], strides=[2, 2]), FILTER,
        i=np.zeros(FILTER, np.int64)),
    "Col2Im": lambda h: case(node("Col2Im", ["x", "s", "b"], ["y"]), [1, 4, 4], s=[h, 4], b=[2, 2]),
    "RoiAlign": lambda h: case(
        node("RoiAlign", ["x", "r", "i"], ["y"], sampling_ratio=h), IMAGE,
        r=np.ones((1, 4), "f"), i=[0]),
    "MaxRoiPool": lambda h: case(
        node("MaxRoiPool", ["x", "r"], ["y"], pooled_shape=[h, 2]), IMAGE, r=np.zeros((1, 5), "f")),
    "STFT": lambda h: case(node("STFT", ["x", "s", "", "n"], ["y"]), [1, 64, 1], 17, s=h, n=16),
    "STFT, frames": lambda h: case(
        node("STFT", ["x", "s", "", "n"], ["y"]), [1, 64, 1], 17, s=4, n=h),
    "MelWeightMatrix": lambda h: case(
        node("MelWeightMatrix", ["a", "b", "c", "d", "e"], ["y"]), a=h, b=16, c=8000,
        d=np.float32(0), e=np.float32(4000)),
    "DequantizeLinear": lambda h: case(
        node("DequantizeLinear", ["x", "s"], ["y"], block_size=h, axis=0), [4, 2], 21,
        types={"x": INT8}, s=np.ones((2, 2), "f")),
    "ReverseSequence": lambda h: case(
        node("ReverseSequence", ["x", "n"], ["y"], time_axis=h, batch_axis=1), [4, 2], n=[2, 2]),
    "heads": lambda h: case(
        node("MultiHeadAttention", ["x", "x", "x"], ["y"], num_heads=h, domain="com.microsoft"),
        [1, 2, 4]),
    "an input": lambda h: case(node("Neg", ["x"], ["y"]), [h]),
    **WINDOWS,
}
WITH_FLOATS: dict[str, Callable[[float], Case]] = {
    "Upsample": lambda f: case(
        node("Upsample", ["x"], ["y"], scales=[1.0, 1.0, f, 1.0]), FILTER, 8),
    "Resize": lambda f: case(
        node("Resize", ["x", "", "s"], ["y"], mode="linear"), FILTER,
        s=np.array([1, 1, f, 1], "f")),
    "Resize, antialias": lambda f: case(
        node("Resize", ["x", "", "s"], ["y"], mode="cubic", antialias=1), FILTER,
        s=np.array([1, 1, f, 1], "f")),
    "Resize of opset 10": lambda f: case(
        node("Resize", ["x", "s"], ["y"]), FILTER, 10, s=np.array([1, 1, f, 1], "f")),
    "Range": lambda f: case(
        node("Range", ["a", "b", "s"], ["y"]), a=np.float32(0), b=np.float32(f), s=np.float32(1)),
    "Range, step": lambda f: case(
        node("Range", ["a", "b", "s"], ["y"]), a=np.float32(0), b=np.float32(9), s=np.float32(f)),
}


def taken(given: Case) -> UnsupportedModelError | None:
    """The message about a model, if it is refused. No large array is made, and no other error
    raised."""
    nodes, shapes, constants, opset, types = given
    outputs = [name for name in nodes[-1].output if name]
    proto = model(
        nodes, [info(name, s, types.get(name, TensorProto.FLOAT)) for name, s in shapes.items()],
        [ValueInfoProto(name=name) for name in outputs], constants, opset=opset, microsoft=True,
    )
    tracemalloc.start()
    try:
        convert(Conversion(read_model(proto), ShapeBuilder(), constant_of), {}, None)
    except UnsupportedModelError as error:
        return error
    except InvalidModelError as error:
        assert "\n" not in str(error)
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 64 << 20
    return None


def refused_well(error: UnsupportedModelError) -> None:
    for problem in error.problems:
        assert len(str(problem)) < 700 and str(problem).isprintable()
        assert not RIDDLE.search(problem.reason), problem


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", HOSTILE)
def test_numbers(name):
    errors = [taken(HOSTILE[name](h)) for h in NUMBERS]
    for error in errors:
        if error is not None:
            refused_well(error)


@pytest.mark.parametrize("name", WITH_FLOATS)
def test_floats(name):
    for f in FLOATS:
        error = taken(WITH_FLOATS[name](f))
        if error is not None:
            refused_well(error)


#: Messages about some of them.
SAID = {
    "Split": (10**9, "Split 'y': num_outputs is 1000000000, the node has 2 outputs"),
    "Split of one": (10**9, "num_outputs is 1000000000, the node has 1 outputs"),
    "Split of a constant": (10**9, "num_outputs is 1000000000, the node has 1 outputs"),
    "Resize": (0, r"Resize 'y': dimensions [1, 1, 2, 2] of [1, 1, 2, 2] would become [1, 1, 0, 2]"),
    "Resize, linear": (-5, "would become [1, 1, -5, 2]; as many are expected, each 1 … 2147483647"),
    "Resize, aspect": (0, "would become [1, 1, 0, 2]"),
    "Upsample": (0, "Upsample 'y': dimensions [1, 1, 2, 2] of [1, 1, 2, 2] would become"),
    "Range, step": (0, "Range 'y': from 0 to 10 by steps of 0: it has no end"),
    "SequenceAt": (10**9, "SequenceAt 'y': position 1000000000 in a sequence of 2"),
    "SequenceErase": (2**62, "position 4611686018427387904 in a sequence of 2"),
    "SequenceInsert": (-5, "position -5 in a sequence of 2"),
    "MaxPool strides": (0, "strides is [0, 1]; 2 positive numbers are expected"),
    "LpPool dilations too few": (1, "dilations is [1]; 2 positive numbers are expected"),
    "Conv pads too few": (1, "pads is [1]; 4 numbers are expected"),
    "ConvTranspose strides too few": (1, "strides is [1]; 2 positive numbers are expected"),
    "Conv kernel_shape": (3, "kernel_shape is [3, 1], the weights are [1, 1, 2, 2]"),
    "Flatten": (2, "Flatten 'y': axis 2 of a tensor of rank 1"),
    "Expand": (-5, "shape [1] can't be expanded to [-5]"),
    "RoiAlign": (10**9, "it would need a table of [1, 1000000000, 4] elements"),
    "MaxRoiPool": (10**9, "it would need a table of [1000000000, 4] elements"),
    "STFT, frames": (10**9, "frames of 1000000000, 4 apart, in 64 samples"),
    "an input": (2**40, "'x': input 'x'[0]: 1099511627776 is outside"),
    "DepthToSpace": (0, "its inputs (computed float32[1, 4, 2, 2]) and attributes "
                        "{'blocksize': 0} do not go together"),
    "heads": (0, "attributes {'num_heads': 0} do not go together"),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name):
    number, text = SAID[name]
    error = taken(HOSTILE[name](number))
    assert error is not None and text in str(error)

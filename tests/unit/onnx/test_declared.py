"""The declared types and shapes of a model's values against the ones that its nodes return."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from tests.support.onnx_models import info, model, take
from tests.support.onnx_nodes import runtime
from webnn_vk.onnx import InvalidModelError
from webnn_vk.support import warnings as library_warnings

node = helper.make_node
FLOAT, HALF, BOOL, BYTE = (
    TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.BOOL, TensorProto.UINT8
)
INT, LONG, SHORT = TensorProto.INT32, TensorProto.INT64, TensorProto.INT16


@pytest.fixture(autouse=True)
def _nothing_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_warnings, "_said", set())


def chain(declared: int, inner: int = FLOAT) -> ModelProto:
    proto = model(
        [node("Neg", ["x"], ["z"], "first"), node("Abs", ["z"], ["y"], "second")],
        [info("x", [2, 3])], [info("y", [2, 3], declared)],
    )
    proto.graph.value_info.append(info("z", [2, 3], inner))
    return proto


def compared(declared: int) -> ModelProto:
    return model([node("Greater", ["x", "x"], ["y"], "asks")], [info("x", [2, 3])],
                 [info("y", [2, 3], declared)])


def moved(kind: int, declared: int) -> ModelProto:
    return model([node("Transpose", ["x"], ["y"], "moved")], [info("x", [3, 2], kind)],
                 [info("y", [2, 3], declared)])


def cast(to: int, declared: int) -> ModelProto:
    return model([node("Cast", ["x"], ["y"], "turned", to=to)], [info("x", [2, 3])],
                 [info("y", [2, 3], declared)])


def known(declared: int) -> ModelProto:
    return model([node("Shape", ["x"], ["y"], "known")], [info("x", [2, 3])],
                 [info("y", [2], declared)])


def branches(declared: int) -> ModelProto:
    then, other = (
        helper.make_graph([node(name, ["x"], [name])], name, [], [info(name, [2, 3], declared)])
        for name in ("Neg", "Abs")
    )
    return model(
        [node("If", ["c"], ["y"], "decides", then_branch=then, else_branch=other)],
        [info("x", [2, 3])], [info("y", [2, 3])], {"c": np.array(True)},
    )


#: Right ones and wrong ones; the wrong ones with their messages.
CASES = {
    "right": (chain(FLOAT), None),
    "an output": (chain(LONG), "'y' is declared int64, and made by Abs 'second' as float32"),
    "half precision": (chain(HALF), "'y' is declared float16, and made by Abs 'second' as float32"),
    "inside": (chain(FLOAT, LONG), "'z' is declared int64, and made by Neg 'first' as float32"),
    "truth": (compared(BOOL), None),
    "truth as bytes": (compared(BYTE), "'y' is declared uint8, and made by Greater 'asks' as bool"),
    "bytes": (cast(BYTE, BYTE), None),
    "bytes as truth": (
        cast(BYTE, BOOL), "'y' is declared bool, and made by Cast 'turned' as uint8"),
    "truth by a cast": (cast(BOOL, BOOL), None),
    "16 bits": (moved(SHORT, SHORT), None),
    "32 bits as 16": (
        moved(INT, SHORT), "'y' is declared int16, and made by Transpose 'moved' as int32"),
    "16 bits as 32": (
        moved(SHORT, INT), "'y' is declared int32, and made by Transpose 'moved' as int16"),
    "known": (known(LONG), None),
    "known otherwise": (known(INT), "'y' is declared int32, and made by Shape 'known' as int64"),
    "branches": (branches(FLOAT), None),
    "wrong branches": (branches(LONG), "'Neg' is declared int64, and made by Neg '' as float32"),
}


@pytest.mark.parametrize("name", CASES)
def test_wrong_types_are_refused_where_onnx_runtime_does(name):
    proto, said = CASES[name]
    if said is None:
        take(proto)
        runtime(proto)
        return
    with pytest.raises(InvalidModelError) as caught:
        take(proto)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    with pytest.raises(Exception, match="Type Error: Type .* does not match expected type"):
        runtime(proto)


@pytest.mark.parametrize("shape", [[2, 4], [2], [6], ["n", 4], []])
def test_wrong_shapes_are_told_as_by_onnx_runtime(shape):
    """It warns, and computes."""
    proto = model([node("Neg", ["x"], ["y"])], [info("x", [2, 3])], [info("y", shape)])
    with pytest.warns(RuntimeWarning, match="declares output 'y' with shape .*; it is \\[2, 3\\]"):
        outputs = take(proto)
    assert outputs["y"].shape == (2, 3)
    feeds = {"x": np.ones((2, 3), np.float32)}
    assert runtime(proto).run(None, feeds)[0].shape == (2, 3)


@pytest.mark.parametrize("shape", [[2, 3], ["n", "m"], [2, "m"], [0, 3], None])
def test_shapes_that_leave_dimensions_open_fit(shape):
    proto = model([node("Neg", ["x"], ["y"])], [info("x", [2, 3])], [info("y", shape)])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert take(proto)["y"].shape == (2, 3)

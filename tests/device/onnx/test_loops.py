"""Loop, Scan and recurrent networks without an operator of WebNN's own: one loop for all steps,
beside ONNX Runtime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from webnn_vk import MLGraphBuilder
from webnn_vk.onnx import build_operands

node = helper.make_node
STEPS, BATCH, SIZE = 11, 3, 5


def draw(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-0.7, 0.7, shape).astype(np.float32)


def scan(rng: np.random.Generator) -> Any:
    """Two states that change places, along other dimensions, backward in and out."""
    body = helper.make_graph(
        [node("MatMul", ["h", "w"], ["p"]), node("Add", ["p", "now"], ["q"]),
         node("Tanh", ["q"], ["next"]), node("Sub", ["k", "now"], ["out"]),
         # ONNX Runtime 1.32 gives zeros for an input of the body as its output.
         node("Identity", ["k"], ["same"])],
        "body", [info(n, [BATCH, SIZE]) for n in ("h", "k", "now")],
        [info(n, [BATCH, SIZE]) for n in ("same", "next", "out")],
    )
    proto = node(
        "Scan", ["h0", "k0", "x"], ["h1", "k1", "y"], body=body, num_scan_inputs=1,
        scan_input_axes=[1], scan_input_directions=[1], scan_output_axes=[-1],
        scan_output_directions=[1],
    )
    return model(
        [proto], [info("x", [BATCH, STEPS, SIZE]), *(info(n, [BATCH, SIZE]) for n in ("h0", "k0"))],
        [info("h1", [BATCH, SIZE]), info("k1", [BATCH, SIZE]), info("y", [BATCH, SIZE, STEPS])],
        {"w": draw(rng, SIZE, SIZE)},
    )


def loop(rng: np.random.Generator) -> Any:
    """With the iteration's number, and results of all iterations."""
    body = helper.make_graph(
        [node("Cast", ["i"], ["t"], to=TensorProto.FLOAT), node("Mul", ["v", "c"], ["u"]),
         node("Add", ["u", "t"], ["w"]), node("Identity", ["going"], ["more"]),
         node("Cast", ["w"], ["whole"], to=TensorProto.INT64),
         node("Add", ["whole", "i"], ["numbers"])],
        "body",
        [info("i", [], TensorProto.INT64), info("going", [], TensorProto.BOOL), info("v", [SIZE])],
        [info("more", [], TensorProto.BOOL), info("w", [SIZE]), info("u", [SIZE]),
         info("numbers", [SIZE], TensorProto.INT64)],
    )
    return model(
        [node("Loop", ["n", "", "x"], ["y", "all", "numbers"], body=body)], [info("x", [SIZE])],
        [info("y", [SIZE]), info("all", [STEPS, SIZE]),
         info("numbers", [STEPS, SIZE], TensorProto.INT64)],
        {"n": np.array(STEPS), "c": np.float32(0.75)},
    )


def nested(rng: np.random.Generator) -> Any:
    """A Scan in a Loop: in each iteration its state begins with the state of the Loop."""
    inner = helper.make_graph(
        [node("Mul", ["s", "c"], ["t"]), node("Add", ["t", "row"], ["r"]),
         node("Sub", ["r", "v"], ["out"])],
        "inner", [info("s", [SIZE]), info("row", [SIZE])],
        [info("r", [SIZE]), info("out", [SIZE])],
    )
    body = helper.make_graph(
        [node("Scan", ["v", "x"], ["last", "rows"], body=inner, num_scan_inputs=1,
              scan_input_directions=[1]),
         node("Tanh", ["last"], ["w"]), node("Identity", ["going"], ["more"])],
        "body",
        [info("i", [], TensorProto.INT64), info("going", [], TensorProto.BOOL), info("v", [SIZE])],
        [info("more", [], TensorProto.BOOL), info("w", [SIZE]), info("rows", [STEPS, SIZE])],
    )
    return model(
        [node("Loop", ["n", "", "v0"], ["y", "all"], body=body)],
        [info("x", [STEPS, SIZE]), info("v0", [SIZE])],
        [info("y", [SIZE]), info("all", [STEPS + 1, STEPS, SIZE])],
        {"n": np.array(STEPS + 1), "c": np.float32(0.5)},
    )


def recurrent(
    rng: np.random.Generator, kind: str, gates: int, direction: str, **attributes: Any
) -> Any:
    """With sequences of different lengths."""
    directions = 2 if direction == "bidirectional" else 1
    weights = {
        "w": draw(rng, directions, gates * SIZE, SIZE),
        "r": draw(rng, directions, gates * SIZE, SIZE),
        "b": draw(rng, directions, 2 * gates * SIZE), "lengths": np.array([STEPS, 4, 7], np.int32),
    }
    outputs = ["y", "h", "c"][: 3 if kind == "LSTM" else 2]
    state = [directions, BATCH, SIZE]
    return model(
        [node(kind, ["x", "w", "r", "b", "lengths"], outputs, hidden_size=SIZE,
              direction=direction, **attributes)],
        [info("x", [STEPS, BATCH, SIZE])],
        [info("y", [STEPS, *state]), *(info(n, state) for n in outputs[1:])], weights,
    )


CASES = {
    "scan": scan, "loop": loop, "nested": nested,
    "rnn": lambda rng: recurrent(rng, "RNN", 1, "bidirectional"),
    "lstm": lambda rng: recurrent(rng, "LSTM", 4, "bidirectional", clip=0.5),
    "gru": lambda rng: recurrent(rng, "GRU", 3, "reverse"),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("where", ["vulkan_context", "cpu_context"])
def test_as_onnx_runtime(name: str, where: str, request: Any, rng: np.random.Generator) -> None:
    context, proto = request.getfixturevalue(where), CASES[name](rng)
    session = onnxruntime.InferenceSession(
        proto.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    feeds = {i.name: draw(rng, *i.shape) for i in session.get_inputs()}
    wanted = session.run(None, feeds)
    builder = MLGraphBuilder(context)
    with builder.build(build_operands(proto, builder)).result() as graph:
        found = context.compute(graph, feeds)
        operators = [o.split()[0] for step in graph.report().steps for o in step.operators]
    assert operators.count("repeat") == 1
    for port, array in zip(session.get_outputs(), wanted, strict=True):
        assert_allclose(found[port.name], array, atol=2e-6, err_msg=port.name)

"""The cost of calls of the npm package, counted (js/bench/counts.js); with --explore in processor
time too (js/bench/calls.js)."""

from __future__ import annotations

import json
import time

import pytest

import webnn_vk as webnn
from tests.support import node
from tests.support.counting import calls_of
from webnn_vk.bridge.frames import PROTOCOL, Frame, Kind
from webnn_vk.bridge.session import Session


def test_what_a_call_does(tmp_path):
    """One frame there and one back, of a few bytes and through a few functions; a write sends the
    caller's own array."""
    done = node.run("bench/counts.js", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    counts = json.loads(done.stdout)
    for name in ("add", "dispatch"):
        found = counts[name]
        assert (found["sent"], found["received"]) == (1, 1), counts
        assert found["bytes"] < 80 and 20 < found["functions"] < 110, counts
    write = counts["write"]
    assert (write["sent"], write["received"], counts["own"]) == (1, 1, True), counts
    assert 1e8 < write["bytes"] < 1e8 + 100 and write["functions"] < 80, counts


def test_what_the_bridge_does(cpu_context, monkeypatch):
    """The bridge adds few Python calls to those of the method itself."""
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    builder = webnn.MLGraphBuilder(cpu_context)
    a = builder.input("a", {"data_type": "float32", "shape": [4]})
    builder.add(a, a)
    own = calls_of(lambda: builder.add(a, a))

    replies: list[Frame] = []
    session = Session(lambda: None)
    frames = (Frame(Kind.HELLO, 1, {"protocol": PROTOCOL}),
              Frame(Kind.START, 2, ["createContext", ["default", True]]))
    for frame in frames:
        session.handle(frame)
    while not replies:
        replies = session.handle(Frame(Kind.POLL, 3, None))[:-1]
    (context, _), = (reply.header for reply in replies)

    def call(name, *arguments):
        (reply,) = session.handle(Frame(Kind.CALL, 4, [name, list(arguments)]))
        assert reply.kind == Kind.VALUE, reply
        return reply.header

    bridged = call("builder", context)
    call("input", bridged, "a", "float32", [4])
    call("operator", bridged, "add", [0, 0], {})
    frame = Frame(Kind.CALL, 5, ["operator", [bridged, "add", [0, 0], {}]])
    beyond = calls_of(lambda: session.handle(frame)) - own
    session.close()
    assert 0 < beyond < 50, (beyond, own)


def python_add() -> float:
    """Microseconds of processor time of one ``builder.add`` in Python."""
    with webnn.ml.create_context(settings=webnn.Settings(device="cpu")).result() as context:
        builder = webnn.MLGraphBuilder(context)
        a = builder.input("a", {"data_type": "float32", "shape": [4]})
        for _ in range(500):
            builder.add(a, a)
        start = time.process_time()
        for _ in range(5000):
            builder.add(a, a)
        return (time.process_time() - start) / 5000 * 1e6


@pytest.mark.explore
def test_calls_are_cheap(tmp_path):
    done = node.run("bench/calls.js", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    costs = json.loads(done.stdout)
    own = python_add()
    beyond = costs["add"]["node"] + costs["add"]["bridge"] - own
    dispatch = costs["dispatch"]["node"] + costs["dispatch"]["bridge"]
    assert beyond < 80, (costs, own)
    assert dispatch < 120, costs
    # 1 GB/s is 100 ms for each side, on a machine that has nothing else to do.
    assert max(costs["write"]["node"], costs["write"]["bridge"]) < 250, costs

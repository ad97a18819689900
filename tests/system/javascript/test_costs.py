"""The cost of calls of the npm package: js/bench/calls.js, in processor time, which other processes
disturb little."""

from __future__ import annotations

import json
import time

import webnn_vk as webnn
from tests.support import node


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

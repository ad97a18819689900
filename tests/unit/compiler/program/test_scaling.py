"""Compile time is proportional to the graph's size, whatever its form: twice the nodes, about twice
the calls. Counted, not timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.counting import calls_of
from tests.support.profiles import stored_profile
from webnn_vk import MLContext, MLGraphBuilder
from webnn_vk.compiler.program import Target, compile_program

F4 = {"data_type": "float32", "shape": [4]}
#: Calls for twice the nodes, divided by those for the nodes once; quadratic algorithms come close
#: to 4.
MOST = 2.4


def many_readers(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = b.relu(x)
    return {f"{i}": b.add(y, b.constant("float32", i)) for i in range(n)}


def readers_summed(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = sum_ = b.relu(x)
    for i in range(n):
        sum_ = b.add(sum_, b.mul(y, b.constant("float32", i)))
    return {"y": sum_}


def readers_joined(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = b.relu(x)
    return {"y": b.concat([b.add(y, b.constant("float32", i)) for i in range(n)], 0)}


def slices_of_one(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = b.relu(x)
    return {f"{i}": b.sin(b.slice(y, [i % 4], [1])) for i in range(n)}


def transposes_of_one(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = b.softmax(b.reshape(x, [2, 2]), 1)
    return {f"{i}": b.add(b.transpose(y), b.constant("float32", i)) for i in range(n)}


def products_of_one(b: Any, x: Any, n: int) -> dict[str, Any]:
    w = b.constant({"data_type": "float32", "shape": [4, 4]}, np.eye(4, dtype=np.float32))
    y = b.reshape(x, [1, 4])
    return {f"{i}": b.matmul(y, w) for i in range(n)}


def pads_read_often(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = b.pad(b.reshape(x, [1, 1, 2, 2]), [0, 0, 1, 1], [0, 0, 1, 1])
    w = b.constant({"data_type": "float32", "shape": [1, 1, 3, 3]}, np.ones(9, np.float32))
    return {f"{i}": b.conv2d(y, w) for i in range(n)}


def wide(b: Any, x: Any, n: int) -> dict[str, Any]:
    """All alive at once, of many sizes, and ending in another order."""
    y = b.reshape(x, [4, 1])
    parts = [b.softmax(b.expand(b.add(y, b.constant("float32", i)), [4, 1 + 64 * (i % 37)]), 1)
             for i in range(n)]
    sum_ = x
    for part in parts[::2] + parts[1::2]:
        sum_ = b.add(sum_, b.reduce_sum(part))
    return {"y": sum_}


def chain(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = b.reshape(x, [2, 2])
    steps: list[Callable[[Any], Any]] = [
        b.relu, b.transpose, lambda v: b.matmul(v, v), lambda v: b.softmax(v, 1)]
    for i in range(n):
        y = steps[i % 4](y)
    return {"y": y}


def views_of_views(b: Any, x: Any, n: int) -> dict[str, Any]:
    """Each read by a node that would trace where its elements come from."""
    y, outputs = b.relu(x), {}
    for i in range(n):
        y = b.reshape(y, [2, 2] if i % 2 else [4])
        outputs[f"{i}"] = b.sin(y)
    return outputs


def movements_of_movements(b: Any, x: Any, n: int) -> dict[str, Any]:
    y, outputs = b.relu(b.reshape(x, [2, 2])), {}
    for i in range(n):
        y = b.transpose(y)
        outputs[f"{i}"] = b.sin(y)
    return outputs


def half_on_the_cpu(b: Any, x: Any, n: int) -> dict[str, Any]:
    y = sum_ = b.relu(x)
    for i in range(n):
        sum_ = b.add(sum_, b.neg(b.mul(y, b.constant("float32", i))))
    return {"y": sum_}


FORMS = (
    many_readers, readers_summed, readers_joined, slices_of_one, transposes_of_one,
    products_of_one, pads_read_often, wide, chain, views_of_views, movements_of_movements,
    half_on_the_cpu,
)


def compiled(context: MLContext, form: Callable[..., Any], n: int, target: Target) -> None:
    builder = MLGraphBuilder(context)
    outputs = form(builder, builder.input("x", F4), n)
    compile_program(builder._graph(outputs), target)


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("form", FORMS)
def test_twice_the_nodes_twice_the_calls(cpu_context, monkeypatch, form):
    # The verifier after each pass belongs to the tests.
    monkeypatch.delenv("WEBNN_VK_VERIFY_PASSES", raising=False)
    target = Target(stored_profile(), force_cpu=("neg",) if form is half_on_the_cpu else ())
    compiled(cpu_context, form, 8, target)  # what is found out once
    once, twice = (calls_of(lambda n=n: compiled(cpu_context, form, n, target))
                   for n in (80, 160))
    assert twice < MOST * once, (once, twice)


def test_constants_that_differ_in_the_middle(cpu_context):
    """Equal ones are found without comparing each with all others."""

    def constants(n: int) -> None:
        builder = MLGraphBuilder(cpu_context)
        for i in range(n):
            data = np.zeros(1000, np.float32)
            data[500] = i
            builder.constant(data)

    constants(2)
    assert calls_of(lambda: constants(400)) < MOST * calls_of(lambda: constants(200))


@pytest.mark.parametrize("length", [5_000, pytest.param(50_000, marks=pytest.mark.explore)])
def test_long_chains_compile_and_run(context, length):
    builder = MLGraphBuilder(context)
    y = x = builder.input("x", F4)
    for i in range(length):
        y = builder.reshape(y, [2, 2] if i % 2 else [4]) if i % 5 == 4 else builder.abs(y)
    y = builder.add(builder.reshape(y, [4]), x)
    graph = builder.build({"y": y}).result()
    found = context.compute(graph, {"x": np.array([1, -2, 3, -4], np.float32)})
    assert found["y"].tolist() == [2, 0, 6, 0]


@pytest.mark.explore
def test_six_thousand_readers_are_built_and_right(context):
    builder = MLGraphBuilder(context)
    outputs = many_readers(builder, builder.input("x", F4), 6000)
    graph = builder.build(outputs).result()
    found = context.compute(graph, {"x": np.ones(4, np.float32)})
    assert all((found[f"{i}"] == 1 + i).all() for i in range(6000))

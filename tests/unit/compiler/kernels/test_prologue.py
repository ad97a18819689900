"""Element-wise operators computed where another kernel loads its operand: which ones, and plans."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases.prologue import CASES, FAR, prologued
from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from tests.support.running import plan
from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelGraph, family_of
from webnn_vk.compiler.kernels.absorb import absorb
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize

GPU, SOFTWARE = stored_profile("amd_navi31"), stored_profile()


def fused(graph: Graph, *apart: str, profile: Any = GPU) -> KernelGraph:
    alone = frozenset(node for node in graph.nodes if node.operator.name in apart)
    done = absorb(fuse(kernelize(graph, alone), profile))
    done.verify()
    return done


def titles(graph: KernelGraph) -> list[str]:
    return [node.title for node in graph.nodes]


@pytest.mark.parametrize("case", CASES)
def test_one_kernel_reads_what_the_steps_read(case: str) -> None:
    made = CASES[case]("float32")
    node = prologued(made, GPU)
    assert node.prologue is not None
    assert node.operands["input"].value not in node.reads
    assert set(node.reads) <= set(made.arrays)
    dispatches = plan(node, GPU)
    bound = {binding.value for dispatch in dispatches for binding in dispatch.bindings}
    assert node.operands["input"].value not in bound
    assert set(made.arrays) <= bound


def test_titles_text_and_sources_are_those_of_all() -> None:
    emit = Emitter()
    x, m = graph_input("x", (2, 8)), graph_input("m", (8,))
    y = emit.relu(emit.softmax(emit.add(emit.mul(x, x), m, label="mask"), 1))
    graph = graph_of(emit, {"y": y}, x, m)
    (node,) = (done := fused(graph)).nodes
    assert node.titles == ("mul", "add [mask]", "softmax", "relu")
    assert node.sources == graph.nodes
    assert str(done).splitlines()[2:] == [
        "%0: float32[2, 8] = softmax(input=(mul(a=%x, b=%x) |> add [mask](%m)), axis=1) |> relu()",
        "output y = %0",
    ]


def _kept(emit: Emitter, x: Value) -> dict[str, Value]:
    """Other kernels need computed operands."""
    total = emit.add(x, x)
    return {"y": emit.softmax(total, 1), "total": total}


def _read_by_two(emit: Emitter, x: Value) -> dict[str, Value]:
    total = emit.add(x, x)
    return {"y": emit.softmax(total, 1), "z": emit.reduce_max(total)}


def _read_again(emit: Emitter, x: Value) -> dict[str, Value]:
    total = emit.add(x, x)
    return {"y": emit.add(emit.softmax(total, 1), total)}


def _read_as_scale(emit: Emitter, x: Value) -> dict[str, Value]:
    total = emit.add(emit.reshape(x, (128,)), emit.reshape(x, (128,)))
    return {"y": emit.layer_normalization(total, scale=total, axes=[0])}


def _dear(emit: Emitter, x: Value) -> dict[str, Value]:
    """A row is read three times: computing an error function each time costs too much."""
    return {"y": emit.softmax(emit.erf(x), 1)}


def _of_another_type(emit: Emitter, x: Value) -> dict[str, Value]:
    return {"y": emit.softmax(emit.cast(x, "float16"), 1)}


def _reshaped(emit: Emitter, x: Value) -> dict[str, Value]:
    return {"y": emit.softmax(emit.reshape(emit.add(x, x), (4, 4, 8)), 1)}


@pytest.mark.parametrize(
    "made",
    [_kept, _read_by_two, _read_again, _read_as_scale, _dear, _of_another_type, _reshaped],
)
def test_what_stays_a_kernel_of_its_own(made: Any) -> None:
    emit = Emitter()
    x = graph_input("x", (16, 8))
    graph = graph_of(emit, made(emit, x), x)
    assert not any(getattr(node, "prologue", None) for node in fused(graph).nodes)


def test_a_row_read_thrice_may_cost_ten_operations() -> None:
    emit = Emitter()
    x = graph_input("x", (16, 8))
    graph = graph_of(emit, {"y": emit.softmax(emit.exp(x), 1)}, x)
    assert titles(fused(graph)) == ["exp + softmax"]
    graph = graph_of(emit, {"y": emit.softmax(emit.relu(emit.exp(x)), 1)}, x)
    assert titles(fused(graph)) == ["exp + relu", "softmax"]


def test_a_row_read_once_may_cost_more() -> None:
    emit = Emitter()
    x = graph_input("x", (16, 8))
    graph = graph_of(emit, {"y": emit.reduce_sum(emit.exp(x), axes=[1])}, x)
    assert titles(fused(graph)) == ["exp + reduce_sum"]
    assert titles(fused(graph, "exp")) == titles(fused(graph, "reduce_sum")) == [
        "exp", "reduce_sum"
    ]


def test_software_devices_do_so_for_large_tensors_alone() -> None:
    for rows, expected in ((16, ["add", "softmax"]), (2048, ["add + softmax"])):
        emit = Emitter()
        x = graph_input("x", (rows, 512))
        graph = graph_of(emit, {"y": emit.softmax(emit.add(x, x), 1)}, x)
        assert titles(fused(graph, profile=SOFTWARE)) == expected


@pytest.mark.parametrize(("binding", "expected"), [
    (1024, ["add", "softmax"]), (2044, ["add", "softmax"]), (2048, ["add + softmax"]),
])
def test_more_than_a_binding_holds_is_stored(binding: int, expected: list[str]) -> None:
    emit = Emitter()
    x = graph_input("x", (16, 32))
    graph = graph_of(emit, {"y": emit.softmax(emit.add(x, x), 1)}, x)
    profile = GPU.replace(max_storage_buffer_range=binding)
    assert titles(fused(graph, profile=profile)) == expected


@pytest.mark.parametrize("case", FAR)
def test_steps_before_read_through_movements(case: str) -> None:
    made = FAR[case]("float32")
    node = prologued(made, GPU)
    assert set(node.reads) == set(made.arrays)


def test_every_family_that_offers_it_is_covered() -> None:
    offering = {family_of(prologued(case("float32"), GPU)).name for case in CASES.values()}
    assert offering == {"softmax", "norm", "reduce", "pool"}

"""From placed nodes to dispatches: fused kernels that are unavailable are planned unfused, and
nodes without a kernel go to the CPU."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Graph
from webnn_vk.compiler.kernels import (
    KERNEL_PASSES,
    Alias,
    DeviceWork,
    HostWork,
    KernelNode,
    KernelTarget,
    LoweredGraph,
    Plan,
    Schedule,
    lower,
    lower_graph,
    plan,
    solver_of,
)
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.kernels.schedule import problem_class
from webnn_vk.compiler.passes import DEVICE_PASSES, Compilation, remove_dead_code, run_passes


def lowered(graph: Graph, **changes: Any) -> LoweredGraph:
    profile = changes.pop("profile", stored_profile())
    compilation = Compilation(profile, **changes)
    placed = run_passes(DEVICE_PASSES, graph, compilation, clean=remove_dead_code)
    return lower_graph(placed, compilation)


def described(work: LoweredGraph) -> list[str]:
    """One text per item of work: titles on the device, ``cpu …``, ``view``."""
    texts = []
    for w in work.works:
        if isinstance(w, DeviceWork):
            texts.append(" + ".join(w.titles))
        else:
            texts.append(f"cpu {w.node.title}" if isinstance(w, HostWork) else "view")
    return texts


def product(turned: bool = True) -> Graph:
    """relu(aᵀ · b + bias), stored through a transpose if ``turned``."""
    emit = Emitter()
    a, b = graph_input("a", (3, 4, 6)), graph_input("b", (4, 5))
    bias = graph_input("bias", (5,))
    total = emit.matmul(emit.transpose(a, permutation=[0, 2, 1]), b, label="dense")
    y = emit.relu(emit.add(total, bias))
    if turned:
        y = emit.transpose(y, permutation=[1, 0, 2])
    return graph_of(emit, {"y": y}, a, b, bias)


def refusing(wrong: Callable[[Any], bool]) -> Callable[[Any], bool]:
    """All shaders are available except those for which ``wrong`` is true."""
    return lambda spec: not wrong(spec)


def test_everything_joins_where_nothing_hinders() -> None:
    work = lowered(product())
    assert described(work) == ["matmul [dense] + add + relu"]
    (only,) = work.works
    assert only.reason == "has a kernel for it"
    (dispatch,) = only.dispatches
    assert [b.value.name for b in dispatch.bindings[:2]] == ["a", "b"]


def test_what_can_not_be_fused_here_is_tried_apart() -> None:
    # No shader with an epilogue of a product is available: each node is then a kernel with plain
    # accesses.
    fused = refusing(lambda s: s.template.startswith("matmul") and s.option("epilogue"))
    work = lowered(product(), available=fused)
    assert described(work) == ["transpose", "matmul [dense]", "add", "relu", "transpose"]
    assert all(isinstance(w, DeviceWork) for w in work.works)


def test_what_can_not_be_read_here_is_copied_first() -> None:
    turned = refusing(
        lambda s: s.template.startswith("matmul") and s.option("a_transposed")
    )
    work = lowered(product(turned=False), available=turned, skip=frozenset({"fuse"}))
    assert described(work) == ["transpose", "matmul [dense]", "add", "relu"]


def test_what_is_apart_and_still_not_to_be_had_goes_to_the_cpu_and_says_why() -> None:
    work = lowered(product(), available=refusing(lambda s: s.template.startswith("matmul")))
    # The nodes that were separated with it stay separate.
    assert described(work) == ["transpose", "cpu matmul [dense]", "add", "relu", "transpose"]
    (host,) = (w for w in work.works if isinstance(w, HostWork))
    assert host.reason == "no shader for matmul in the shader archive and no GLSL compiler"
    assert host.node.on_cpu and host.node.reason == host.reason


def test_a_limit_of_the_device_is_the_reason() -> None:
    # A convolution binds input, filter, bias, output: four buffers and its parameters.
    emit = Emitter()
    x, w = graph_input("x", (1, 4, 8, 8)), graph_input("w", (4, 4, 3, 3))
    bias = graph_input("bias", (4,))
    y = emit.relu(emit.conv2d(x, w, bias=bias, label="c"))
    graph = graph_of(emit, {"y": y}, x, w, bias)
    few = stored_profile("adreno_minimum").replace(max_storage_buffers_per_stage=3)
    work = lowered(graph, profile=few)
    assert described(work) == ["cpu conv2d [c]", "relu"]
    assert "needs" in work.works[0].reason and "offers 3" in work.works[0].reason


def test_loops_that_the_driver_would_end() -> None:
    emit = Emitter()
    x = graph_input("x", (1, 300, 300, 2))
    y = emit.average_pool2d(x, window_dimensions=[300, 300], layout="nhwc", label="wide")
    z = emit.sqrt(y)
    limit = stored_profile().replace(max_loop_iterations=1000)
    work = lowered(graph_of(emit, {"z": z}, x), profile=limit)
    device = lowered(graph_of(emit, {"z": z}, x))
    assert described(device) == ["average_pool2d [wide] + sqrt"]
    assert described(work)[-1] == "sqrt" and described(work)[0] == "cpu average_pool2d [wide]"
    assert "iterations" in work.works[0].reason


def test_each_kernel_is_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = counted(monkeypatch)
    work = lowered(product())
    assert len(work.works) == 1
    assert list(planned.values()) == [1]
    planned.clear()
    emit = Emitter()
    value = a = graph_input("a", (4, 4))
    for _ in range(6):
        value = emit.softmax(emit.matmul(value, emit.transpose(value)), 1)
    work = lowered(graph_of(emit, {"y": value}, a))
    assert described(work) == ["matmul", "softmax"] * 6
    assert list(planned.values()) == [1] * 12


def test_a_second_attempt_plans_each_kernel_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    planned = counted(monkeypatch)
    fused = refusing(lambda s: s.template.startswith("matmul") and s.option("epilogue"))
    lowered(product(), available=fused)
    # One kernel, then five.
    assert list(planned.values()) == [1] * 6


def counted(monkeypatch: pytest.MonkeyPatch) -> Counter:
    """Counts the plans of each kernel node from now on."""
    planned: Counter = Counter()

    def counting(node: KernelNode, target: KernelTarget) -> Plan:
        planned[node] += 1
        return plan(node, target)

    monkeypatch.setattr(lower, "plan", counting)
    return planned


def test_passes_can_be_left_out() -> None:
    assert [p.name for p in KERNEL_PASSES] == ["fuse", "absorb", "in_place", "donate"]
    assert not any(p.required for p in KERNEL_PASSES)
    assert described(lowered(product(), skip=frozenset({"absorb"}))) == [
        "transpose", "matmul [dense] + add + relu", "transpose"
    ]
    assert described(lowered(product(), skip=frozenset({"fuse"}))) == [
        "matmul [dense]", "add", "relu", "transpose"
    ]


def test_nothing_is_fused_where_no_kernel_can_be_compiled() -> None:
    assert described(lowered(product(), has_compiler=False)) == [
        "matmul [dense]", "add", "relu", "transpose"
    ]


def test_views_are_names_for_the_same_memory() -> None:
    emit = Emitter()
    a = graph_input("a", (4, 6))
    graph = graph_of(emit, {"y": emit.softmax(emit.reshape(emit.exp(a), (6, 4)), 1)}, a)
    work = lowered(graph)
    assert described(work) == ["exp", "view", "softmax"]
    (alias,) = (w for w in work.works if isinstance(w, Alias))
    assert alias.source.shape == (4, 6) and alias.output.shape == (6, 4)


def test_nodes_on_the_cpu_stay_as_they_are() -> None:
    emit = Emitter()
    a = graph_input("a", (4, 6))
    graph = graph_of(emit, {"y": emit.neg(emit.tanh(emit.exp(a)))}, a)
    work = lowered(graph, force_cpu=frozenset({"tanh"}))
    assert described(work) == ["exp", "cpu tanh", "neg"]
    assert work.works[1].reason == "forced to the CPU"


def test_the_tuned_table_decides() -> None:
    emit = Emitter()
    a, b = graph_input("a", (64, 64)), graph_input("b", (64, 64))
    graph = graph_of(emit, {"y": emit.matmul(a, b)}, a, b)
    profile = stored_profile("nvidia_ampere")
    (node,) = kernelize(graph).nodes
    key = ("matmul", problem_class(solver_of(node)[1]))
    wanted = Schedule("matmul", (("LX", 8), ("LY", 8), ("TM", 4), ("TN", 4)))
    kernels = [
        lowered(graph, profile=profile, tuned=tuned).works[0].dispatches[0].kernel
        for tuned in ({}, {key: wanted})
    ]
    assert kernels == ["matmul_tiled", "matmul"]


def test_what_was_folded_is_told() -> None:
    emit = Emitter()
    a = graph_input("a", (2,))
    y = emit.add(a, emit.neg(emit.constant(np.array([1, 2], np.float32)), label="c"))
    assert lowered(graph_of(emit, {"y": y}, a)).folded == ("neg [c]",)

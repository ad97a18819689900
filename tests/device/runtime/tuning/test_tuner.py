"""The tuner on a device: its measurements, the schedules that it accepts, rejects and stores;
builds that use them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.support.contexts import open_context, open_over
from tests.support.discriminating import assert_allclose
from tests.support.driver_proxy import DriverProxy
from tests.support.drivers import require_vulkan
from tests.support.running import node_of, software_profile
from webnn_vk import MLContext, MLGraphBuilder, MLOperandDescriptor
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels import KernelNode, Schedule, family_of
from webnn_vk.compiler.kernels.matmul import MATMUL
from webnn_vk.compiler.kernels.schedule import problem_class
from webnn_vk.compiler.program import kernels_of
from webnn_vk.driver import (
    DispatchCommand,
    DriverError,
    FillCommand,
    OutOfDeviceMemory,
    TimestampCommand,
)
from webnn_vk.runtime.tuning import probe, tuner, workbench
from webnn_vk.runtime.tuning.probe import known_profile, probed_profile
from webnn_vk.runtime.tuning.store import TunedStore, schedule_files
from webnn_vk.runtime.tuning.tuner import Outcome, Plan, Tuner, accepted, difference
from webnn_vk.runtime.tuning.workbench import Workbench

QUICK = Plan(candidates=2, rounds=2)


def _floats(rng: np.random.Generator, *shape: int) -> np.ndarray:
    return rng.uniform(-1, 1, shape).astype(np.float32)


@pytest.fixture(scope="module")
def context() -> Iterator[MLContext]:
    require_vulkan()
    with open_context("vulkan", tune=False) as opened:
        yield opened


def device_of(context: MLContext) -> Any:
    return context._state.device


def tune(
    nodes: Any, device: Any, store: TunedStore, plan: Plan, available: Any = lambda spec: True,
    **options: Any,
) -> list[Outcome]:
    """The results of a tuner."""
    made = Tuner(device, store, plan, **options)
    made(nodes, available)
    return made.outcomes


def product(rng: np.random.Generator, m: int = 32, k: int = 48, n: int = 40) -> KernelNode:
    return KernelNode.of(node_of("matmul", _floats(rng, m, k), _floats(rng, k, n))[0])


# -- what is measured and accepted
KERNELS: dict[str, Callable[[np.random.Generator], KernelNode]] = {
    "matmul": product,
    "conv2d": lambda rng: KernelNode.of(node_of(
        "conv2d", _floats(rng, 1, 16, 12, 12), _floats(rng, 16, 16, 3, 3), padding=[1, 1, 1, 1],
    )[0]),
    "softmax": lambda rng: KernelNode.of(node_of("softmax", _floats(rng, 16, 64), 1)[0]),
    "reduce_sum": lambda rng: KernelNode.of(
        node_of("reduce_sum", _floats(rng, 9, 300), axes=[1])[0]
    ),
    "where": lambda rng: KernelNode.of(node_of(
        "where", rng.integers(0, 2, (8, 60), np.uint8), _floats(rng, 8, 60), _floats(rng, 60)
    )[0]),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_fastest_of_those_measured_is_kept(
    context: MLContext, tmp_path: Path, name: str, rng: np.random.Generator
) -> None:
    device, node = device_of(context), KERNELS[name](rng)
    store = TunedStore(tmp_path / "tuned", device.profile)
    (outcome,) = tune([node, node], device, store, QUICK)
    assert outcome.kernels == 2 and outcome.operators == node.title and not outcome.left
    assert [m.rejected for m in outcome.measured] == ["", ""]
    seconds = {m.schedule: m.seconds for m in outcome.measured}
    assert all(0 < s < 60 for s in seconds.values())
    assert outcome.usual in seconds and outcome.chosen == accepted(outcome.usual, seconds)
    assert (outcome.seconds, outcome.usual_seconds) == (
        seconds[outcome.chosen], seconds[outcome.usual]
    )
    expected = "timestamps" if device.driver.timestamps is not None else "submits"
    assert outcome.timed_by == expected
    # Another process finds it, and doesn't measure again unless requested.
    later = TunedStore(tmp_path / "tuned", device.profile)
    assert later[outcome.family, outcome.problem] == outcome.chosen
    (known,) = tune([node], device, later, QUICK)
    assert known.kept and known.chosen == outcome.chosen and not known.measured
    (again,) = tune([node], device, later, replace(QUICK, again=True))
    assert not again.kept and again.measured


def test_what_is_worth_another_pipeline() -> None:
    usual, other = Schedule("a"), Schedule("b")
    assert accepted(usual, {usual: 1.0, other: 0.5}) == other
    assert accepted(usual, {usual: 1.0, other: 0.99}) == usual
    assert accepted(usual, {usual: 1.0, other: 3.0}) == usual


def test_all_memory_is_given_back(vulkan: None, rng: np.random.Generator) -> None:
    with open_context("vulkan", tune=False) as context:  # of its own: its memory is counted
        device = device_of(context)
        before = device.memory_in_use()
        tune([product(rng)], device, TunedStore(None, device.profile), QUICK)
        assert device.memory_in_use() == before


class Recorder(DriverProxy):
    """Keeps what is recorded between timestamps: the memory that is written before it, and each
    dispatch's."""

    def __init__(self, driver: Any, **profile: Any) -> None:
        super().__init__(driver)
        self.profile = driver.profile.replace(**profile)
        self.timed: list[tuple[int, list[list[int]]]] = []

    def record(self, commands: Any) -> Any:
        stamps = [n for n, c in enumerate(commands) if isinstance(c, TimestampCommand)]
        if stamps:
            first, last = stamps
            written = sum(c.size for c in commands[:first] if isinstance(c, FillCommand))
            bound = [[id(held) for held, _, _ in c.bindings] for c in commands[first:last]
                     if isinstance(c, DispatchCommand)]
            self.timed.append((written, bound))
        return self.driver.record(commands)


@pytest.mark.parametrize("between, copies", [(20_000, 4), (200_000, 28)])
def test_a_gpu_reads_constants_from_memory(
    vulkan: None, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator, between: int,
    copies: int,
) -> None:
    """Between two reads of a constant the given number of other bytes is used, as in a large model.
    """
    monkeypatch.setattr(workbench, "_BYTES_BETWEEN", between)
    emit, weight = Emitter(), _floats(rng, 48, 40)  # 7,680 bytes
    a = Value(MLOperandDescriptor("float32", (8, 48)), name="a")
    b = Value(MLOperandDescriptor("float32", weight.shape), data=weight)
    emit.matmul(a, b)
    context, driver = open_over(
        lambda driver: Recorder(driver, device_type="discrete", vendor_id=0x10DE), tune=False
    )
    with context:
        device, node = device_of(context), KernelNode.of(emit.nodes[-1])
        before = device.memory_in_use()
        plain = MATMUL.lower(node, MATMUL.problem(node),
                             MATMUL.candidates(MATMUL.problem(node), device.profile)[0],
                             device.profile)
        bench = Workbench(device, node, 48.0)
        trial = bench.trial(plain)
        (expected,) = bench.results(trial)
        trial.repeats = 32
        bench.measure(trial)
        np.testing.assert_array_equal(bench.results(trial)[0], expected)
        held = device.memory_in_use()
        bench.done(trial)
        assert held - device.memory_in_use() >= (copies - 1) * weight.nbytes
        bench.close()
        assert device.memory_in_use() == before
    ((written, dispatches),) = driver.timed
    assert written == between and len(dispatches) == 32
    (constant,) = {place for place, held in enumerate(zip(*dispatches, strict=True))
                   if len(set(held)) > 1}
    memory = [bound[constant] for bound in dispatches]
    assert memory == (memory[:copies] * 32)[:32] and len(set(memory)) == copies


def test_software_and_kernels_without_constants_read_the_same_memory(
    vulkan: None, rng: np.random.Generator
) -> None:
    emit = Emitter()
    emit.softmax(Value(MLOperandDescriptor("float32", (16, 64)), name="x"), 1)
    for profile in ({}, {"device_type": "discrete", "vendor_id": 0x10DE}):
        context, driver = open_over(lambda driver, p=profile: Recorder(driver, **p), tune=False)
        with context:
            device = device_of(context)
            nodes = [KernelNode.of(emit.nodes[-1])] if profile else [product(rng)]
            tune(nodes, device, TunedStore(None, device.profile), QUICK)
        assert driver.timed
        for written, dispatches in driver.timed:
            assert not written and len(set(map(tuple, dispatches))) <= 2


def test_progress_is_told(context: MLContext, rng: np.random.Generator) -> None:
    device, told = device_of(context), []
    nodes = [product(rng, 8, 8, 8), product(rng, 8, 16, 8), product(rng, 8, 8, 8)]
    tune(nodes, device, TunedStore(None, device.profile), Plan(2, 1),
         progress=lambda *step: told.append(step))
    assert told == [(0, 2, "matmul"), (1, 2, "matmul")]


# -- what is rejected
def test_a_wrong_candidate_is_rejected(
    context: MLContext, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """A kernel that skips half of its work is fast, and is not accepted."""
    device, node = device_of(context), product(rng, 64, 256, 64)
    problem = MATMUL.problem(node)
    candidates = MATMUL.candidates(problem, device.profile)
    order = [*tuner.ranked("matmul", candidates, problem, device.profile)]
    planted, right = order[1], type(MATMUL).lower

    def wrong(self: Any, node: Any, problem: Any, schedule: Schedule, profile: Any) -> Any:
        if schedule == planted:
            problem = replace(problem, k=problem.k // 2)
        return right(self, node, problem, schedule, profile)

    monkeypatch.setattr(type(MATMUL), "lower", wrong)
    # Judged by its time alone, it would be chosen.
    monkeypatch.setattr(tuner, "WORTH", 1e9)
    (outcome,) = tune([node], device, TunedStore(None, device.profile), Plan(3, 1))
    found = {m.schedule: m for m in outcome.measured}
    assert found[planted].seconds is None
    assert "are not the plain kernel's" in found[planted].rejected
    assert outcome.chosen != planted and found[outcome.chosen].rejected == ""


def test_where_the_usual_schedule_is_wrong_nothing_is_kept(
    context: MLContext, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, rng: np.random.Generator
) -> None:
    device, node = device_of(context), product(rng, 64, 256, 64)
    right = type(MATMUL).lower
    plain = MATMUL.candidates(MATMUL.problem(node), device.profile)[0]

    def wrong(self: Any, node: Any, problem: Any, schedule: Schedule, profile: Any) -> Any:
        changed = problem if schedule == plain else replace(problem, k=problem.k // 2)
        return right(self, node, changed, schedule, profile)

    monkeypatch.setattr(type(MATMUL), "lower", wrong)
    store = TunedStore(tmp_path / "tuned", device.profile)
    (outcome,) = tune([node], device, store, QUICK)
    assert outcome.left == "the usual schedule can't be measured"
    assert not schedule_files(tmp_path / "tuned")


def test_differences(rng: np.random.Generator) -> None:
    node = product(rng, 4, 100, 4)
    plain = _floats(rng, 4, 4)
    assert difference(node, [plain], [plain], 100) == ""
    assert difference(node, [plain * np.float32(1 + 1e-6)], [plain], 100) == ""
    for change in (0.01, np.nan, np.inf):
        other = plain.copy()
        other[1, 2] += change
        assert difference(node, [other], [plain], 100) == (
            "1 of 16 elements are not the plain kernel's"
        )
    other = plain + np.float32(0.001 * np.sqrt(np.mean(plain**2)))
    assert difference(node, [other], [plain], 100)
    assert difference(node, [other], [plain], 100, rounded=2.0**-11) == ""
    assert difference(node, [plain + np.float32(0.01)], [plain], 100, rounded=2.0**-11)
    nothing = np.full((4, 4), np.nan, np.float32)
    assert difference(node, [nothing], [nothing], 100) == ""
    assert difference(node, [plain], [nothing], 100)


class NoLargePipelines(DriverProxy):
    """A driver whose compiler fails on 16 rows per tile, and which has no memory for large ones."""

    def pipelines(self, requests: Any) -> Any:
        if any(value == (16).to_bytes(4, "little") for r in requests for _, value in r.constants):
            raise DriverError("VK_ERROR_UNKNOWN")
        return self.driver.pipelines(requests)

    def allocate(self, size: int, **options: Any) -> Any:
        if size > 1 << 20:
            raise OutOfDeviceMemory("no memory")
        return self.driver.allocate(size, **options)


def test_what_fails_is_left_out_and_the_rest_goes_on(vulkan: Any, rng: np.random.Generator) -> None:
    software_profile("the usual tiles of GPUs have 16 rows too")
    context, _ = open_over(NoLargePipelines, tune=False)
    with context:
        device = device_of(context)
        if "texel_buffers" not in device.profile.features:
            pytest.skip("no tiles of 16 rows without texel buffers")
        large = product(rng, 1, 1 << 19, 4)
        tuned = tune([large, product(rng)], device, TunedStore(None, device.profile), Plan(3, 1))
    assert tuned[0].left == "MemoryError: no memory" and tuned[0].chosen == tuned[0].usual
    rejected = {m.schedule: m.rejected for m in tuned[1].measured}
    assert sorted(rejected.values()) == ["", "", "DriverError: VK_ERROR_UNKNOWN"]
    assert rejected[tuned[1].chosen] == "" and tuned[1].seconds


# -- without timestamps
class WithoutTimestamps(DriverProxy):
    timestamps = None


def test_a_device_without_timestamps_is_timed_by_submits(
    vulkan: Any, rng: np.random.Generator
) -> None:
    context, _ = open_over(WithoutTimestamps, tune=False)
    with context:
        device = device_of(context)
        (outcome,) = tune([product(rng)], device, TunedStore(None, device.profile), QUICK)
    assert outcome.timed_by == "submits" and outcome.seconds and outcome.seconds > 0


# -- builds
def layers(context: MLContext) -> tuple[Any, dict[str, np.ndarray], dict[str, np.ndarray]]:
    """A graph of products and convolutions with epilogues and packed constants, an input for it,
    and NumPy's result."""
    local = np.random.default_rng(3)
    x = local.uniform(-1, 1, (1, 8, 10, 10)).astype(np.float32)
    w3 = local.uniform(-0.2, 0.2, (16, 8, 3, 3)).astype(np.float32)
    w1 = local.uniform(-0.2, 0.2, (24, 16, 1, 1)).astype(np.float32)
    wm = local.uniform(-0.2, 0.2, (24, 96)).astype(np.float32)
    b = MLGraphBuilder(context)
    given = b.input("x", {"data_type": "float32", "shape": x.shape})
    y = b.relu(b.conv2d(given, b.constant(w3), padding=[1, 1, 1, 1]))
    y = b.sigmoid(b.conv2d(y, b.constant(w1)))
    y = b.reshape(b.transpose(y, permutation=[0, 2, 3, 1]), [100, 24])
    graph = b.build({"y": b.softmax(b.matmul(y, b.constant(wm)), 1)}).result(120)
    padded = np.pad(x[0].astype(np.float64), ((0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    z = np.maximum(np.einsum("chwij,ocij->ohw", windows, w3), 0)
    z = 1 / (1 + np.exp(-np.einsum("chw,oc->hwo", z, w1[:, :, 0, 0])))
    z = np.exp(z.reshape(100, 24) @ wm)
    return graph, {"x": x}, {"y": z / z.sum(1, keepdims=True)}


def variants(graph: Any) -> list[tuple[str, str, Any]]:
    return [(line.kernel, line.variant, line.groups) for line in graph.report().lines]


def test_builds_use_what_was_tuned(
    vulkan: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tuned in one context, used in the next, ignored if settings say so; equal results."""
    # Another one is chosen, so that the tuned schedule differs from the default.
    monkeypatch.setattr(
        tuner, "accepted", lambda usual, seconds: [s for s in seconds if s != usual][-1]
    )
    results, seen = {}, {}
    for name, setting in (("usual", False), ("tuning", True), ("tuned", None), ("ignored", False)):
        with open_context("vulkan", cache=tmp_path, tune=setting) as context:
            if name == "tuning":
                context._state.tuner.plan = Plan(3, 1)
            graph, inputs, expected = layers(context)
            results[name] = context.compute(graph, inputs)["y"]
            seen[name] = variants(graph)
            if name == "tuning":
                outcomes = context._state.tuner.outcomes
                assert graph.report().build_seconds["tune"] > 0
            else:
                assert context._state.tuner is None
                assert "tune" not in graph.report().build_seconds
    assert all(o.chosen != o.usual for o in outcomes) and len(outcomes) == 4
    assert {o.family for o in outcomes} >= {"matmul", "conv", "softmax"}
    assert seen["tuned"] == seen["tuning"] != seen["usual"] == seen["ignored"]
    for result in results.values():
        assert_allclose(result, expected["y"], rtol=2e-5)
    np.testing.assert_array_equal(results["tuned"], results["tuning"])
    assert len(schedule_files(tmp_path / "tuned")) == len(outcomes)


def test_a_schedule_that_is_no_candidate_is_ignored(
    vulkan: Any, tmp_path: Path, rng: np.random.Generator
) -> None:
    with open_context("vulkan", cache=tmp_path) as context:
        graph, inputs, expected = layers(context)
        usual = variants(graph)
        store = TunedStore(tmp_path / "tuned", device_of(context).profile)
        b = MLGraphBuilder(context)
        a = b.input("a", {"data_type": "float32", "shape": (100, 24)})
        made = b._graph({"y": b.matmul(a, b.constant(_floats(rng, 24, 96)))})
        (node,) = kernels_of(made, context._state.target)
        impossible = Schedule("matmul", (("LX", 8), ("LY", 1), ("TM", 99), ("TN", 99)), "texel")
        text = problem_class(family_of(node).problem(node))
        store.put(tuner.Entry("matmul", text, impossible, 1.0, 1.0, "timestamps"))
    with open_context("vulkan", cache=tmp_path) as context:
        assert context._state.target.tuned["matmul", text] == impossible
        graph, inputs, expected = layers(context)
        assert variants(graph) == usual
        assert_allclose(
            context.compute(graph, inputs)["y"], expected["y"], rtol=2e-5
        )


def test_a_damaged_store_changes_nothing(vulkan: Any, tmp_path: Path) -> None:
    with open_context("vulkan", cache=tmp_path, tune=True) as context:
        context._state.tuner.plan = Plan(2, 1)
        layers(context)
    for path in schedule_files(tmp_path / "tuned"):
        path.write_bytes(path.read_bytes()[:-3])
    with warnings.catch_warnings(record=True) as caught, \
            open_context("vulkan", cache=tmp_path) as context:
        warnings.simplefilter("always")
        graph, inputs, expected = layers(context)
        result = context.compute(graph, inputs)["y"]
    assert any("is ignored: not JSON" in str(notice.message) for notice in caught)
    assert_allclose(result, expected["y"], rtol=2e-5)


# -- which kind of CPU
def test_the_probe_is_asked_once(
    context: MLContext, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = device_of(context)
    if not device.profile.is_software or "texel_buffers" not in device.profile.features:
        assert probed_profile(device, tmp_path) == device.profile
        return
    assert known_profile(device.profile, tmp_path) == device.profile
    loads = probe.probe(device)
    assert loads.storage > 0 < loads.texel
    assert loads.slow_gathers == (loads.storage > probe.SLOW * loads.texel)
    for slow in (True, False):
        folder = tmp_path / str(slow)
        given = probe.Loads(10.0 if slow else 1.0, 1.0)
        monkeypatch.setattr(probe, "probe", lambda device, given=given: given)
        assert probed_profile(device, folder).slow_gathers is slow
        monkeypatch.setattr(probe, "probe", lambda device: pytest.fail("asked again"))
        assert probed_profile(device, folder).slow_gathers is slow
        assert known_profile(device.profile, folder).slow_gathers is slow
        (path,) = folder.iterdir()
        path.write_bytes(b"{")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert known_profile(device.profile, folder) == device.profile


def test_memory_that_the_host_does_not_see(
    context: MLContext, monkeypatch: pytest.MonkeyPatch, rng: np.random.Generator
) -> None:
    """Operands go through staging memory there, as on GPUs with their own memory."""
    device, node = device_of(context), product(rng)
    plain = MATMUL.lower(node, MATMUL.problem(node),
                         MATMUL.candidates(MATMUL.problem(node), device.profile)[0],
                         device.profile)
    results, find = [], type(device).find
    for hidden in (False, True):

        def found(self: Any, size: int, hidden: bool = hidden, **options: Any) -> Any:
            held = find(self, size, **options)
            if hidden and not options.get("host"):
                monkeypatch.setattr(held, "mapped", None)
            return held

        with monkeypatch.context() as patch:
            patch.setattr(type(device), "find", found)
            bench = Workbench(device, node, 48.0)
            results.append(bench.results(bench.trial(plain))[0])
            bench.close()
    np.testing.assert_array_equal(*results)
    assert np.abs(results[0]).max() > 0.1


def test_the_cpu_device_has_nothing_to_tune() -> None:
    with open_context("cpu", tune=True) as context:
        assert context._state.tuner is None

"""Profiles of work on a Vulkan device: the entries, and the accuracy of their times."""

from __future__ import annotations

import json
import re
import time

import numpy as np
import pytest

import webnn_vk
from bench.models import classic, mobilenet_v2
from tests.support.contexts import open_context, open_over
from tests.support.discriminating import assert_allclose
from tests.support.driver_proxy import DriverProxy
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.profiler import profile as profile_module
from webnn_vk.profiler import roofline
from webnn_vk.profiler.sampling import FIRST, Sampler, stamp_seconds
from webnn_vk.runtime.stream import Fence
from webnn_vk.tools.loaded_model import Tensors


@pytest.fixture(autouse=True)
def _vulkan():
    require_vulkan()


@pytest.fixture
def context():
    with open_context("vulkan") as context:
        yield context


class DoneWhenSubmitted(DriverProxy):
    """A device that is done before the call that submits returns."""

    def submit(self, recordings, **semaphores):
        value = self.driver.submit(recordings, **semaphores)
        self.driver.wait(value)
        return value


def build(context, outputs):
    builder = webnn_vk.MLGraphBuilder(context)
    return builder.build(outputs(builder)).result()


def float32(*shape):
    return {"data_type": "float32", "shape": shape}


def products(size, count):
    """A chain of products with a relu fused into each."""

    def outputs(builder):
        y = builder.input("x", float32(size, size))
        weights = np.eye(size, dtype=np.float32)
        for _ in range(count):
            y = builder.relu(builder.matmul(y, builder.constant(weights)))
        return {"y": y}

    return outputs


def test_every_dispatch_is_timed_with_the_flops_and_bytes_of_the_report(context):
    graph = build(context, products(64, 3))
    x = np.random.default_rng(0).random((64, 64), np.float32)
    tensors = Tensors(context, graph)
    with context.profile() as profile:
        for _ in range(2):
            tensors.write({"x": x})
            tensors.dispatch()
            assert_allclose(tensors.read()["y"], x, rtol=1e-5)
    report, lines = profile.report, graph.report().lines
    assert report.runs == 2 and len(report.kernels) == len(lines)
    for kernel in report.kernels:
        line = lines[kernel.line]
        assert (kernel.operators, kernel.kernel, kernel.variant, kernel.groups) == (
            line.operators, line.kernel, line.variant, line.groups)
        assert (kernel.flops, kernel.bytes) == (line.flops, line.bytes)
        assert kernel.runs == 2 and kernel.seconds > 0
    assert sum(k.flops for k in report.kernels) == executable_of(graph).cost.flops
    moved = {t.kind: (t.count, t.bytes) for t in report.transfers}
    assert moved["upload"] == (2, 2 * x.nbytes) and moved["download"] == (2, 2 * x.nbytes)
    kernels = [e for e in profile.trace()["traceEvents"] if e.get("cat") == "kernel"]
    assert len(kernels) == 2 * len(lines)
    # One after the other, and inside of the profile.
    for before, after in zip(kernels, kernels[1:], strict=False):
        assert before["ts"] + before["dur"] <= after["ts"] + 0.01
    assert kernels[-1]["ts"] + kernels[-1]["dur"] <= report.seconds * 1e6 + 1


class Clock(DriverProxy):
    """The n-th time of a recording is n² ms: dispatches take 1, 3, 5 … ms."""

    @property
    def timestamps(self):
        return self

    def read(self, recording):
        return [10**6 * n**2 for n in range(len(self.driver.timestamps.read(recording)))]


def test_the_times_of_dispatches_are_between_those_of_the_device(monkeypatch):
    """Added up over the runs, for each line of the report."""
    monkeypatch.setattr(profile_module, "stamp_seconds", lambda device: 0.0)
    context, _ = open_over(Clock)
    with context:
        graph = build(context, products(64, 3))
        tensors = Tensors(context, graph)
        tensors.write({"x": np.ones((64, 64), np.float32)})
        with context.profile(roofline=False, every=1) as profile:
            for _ in range(4):
                tensors.dispatch()
                tensors.read()
        report = profile.report
        assert report.runs == report.measured == 4 and len(report.kernels) == 3
        for kernel in report.kernels:
            assert kernel.runs == 4
            assert kernel.seconds == pytest.approx(4e-3 * (2 * kernel.line + 1))
        assert report.kernel_seconds == pytest.approx(4 * 9e-3)


@pytest.mark.explore  # other work of the machine comes between; the times above are made up
def test_the_sum_of_the_kernels_is_the_time_of_the_run(context):
    graph = build(context, products(384, 4))
    tensors = Tensors(context, graph)
    tensors.write({"x": np.ones((384, 384), np.float32)})
    tensors.dispatch()
    shares = [0.0]
    # Other work of the machine also falls between kernels.
    while max(shares) < 0.9 and len(shares) < 20:
        with context.profile(roofline=False) as profile:
            for _ in range(FIRST):
                tensors.dispatch()
        shares.append(profile.report.kernel_seconds / profile.report.seconds)
    assert 0.9 <= max(shares) <= 1.0, shares


def mobilenet(context):
    return mobilenet_v2.build(context).result()


def encoder(context):
    """Four layers of MiniLM's size."""
    return build(context, classic.bert(4, tokens=128, width=384, heads=12))


@pytest.mark.parametrize("model", [mobilenet, encoder])
def test_the_kernels_of_a_model_are_those_of_its_report(context, model):
    """With its operations and bytes."""
    graph = model(context)
    tensors = Tensors(context, graph)
    tensors.write({name: np.ones(d.shape, np.float32) for name, d in graph.inputs.items()})
    with context.profile(roofline=False, every=1) as profile:
        for _ in range(2):
            tensors.dispatch()
        context.fence().wait()
    report, lines = profile.report, graph.report().lines
    assert report.runs == report.measured == 2
    assert sorted(k.line for k in report.kernels) == list(range(len(lines)))
    for kernel in report.kernels:
        line = lines[kernel.line]
        assert kernel.runs == 2 and kernel.seconds > 0
        assert (kernel.operators, kernel.flops, kernel.bytes) == (
            line.operators, line.flops, line.bytes)
    assert sum(k.flops for k in report.kernels) == sum(line.flops for line in lines) > 1e7
    assert sum(k.bytes for k in report.kernels) == sum(line.bytes for line in lines) > 1e6


@pytest.mark.explore
@pytest.mark.parametrize("model", [mobilenet, encoder])
def test_the_kernels_of_a_model_take_the_time_of_the_runs(context, model):
    """For the measured runs themselves: within 10 % of their wall time, from the first call until
    the last end is observed, at least once in twenty. (On a busy machine, waiting threads add time,
    but not between queued runs.) The runs before them make the recordings, while the device is
    idle."""
    graph = model(context)
    tensors = Tensors(context, graph)
    tensors.write({name: np.ones(d.shape, np.float32) for name, d in graph.inputs.items()})
    tensors.dispatch()
    tensors.read()
    shares = [0.0]
    while max(shares) < 0.9 and len(shares) < 20:
        with context.profile(roofline=False, every=1) as profile:
            for _ in range(2):
                start = time.perf_counter()
                for _ in range(FIRST):
                    tensors.dispatch()
                context.fence().wait()
                wall = time.perf_counter() - start
        report = profile.report
        assert report.runs == report.measured == 2 * FIRST
        last = [e["dur"] * 1e-6 for e in profile.trace()["traceEvents"]
                if e.get("cat") == "kernel" and e["args"]["run"] >= FIRST]
        shares.append(sum(last) / wall)
    assert 0.9 <= max(shares) <= 1.0, shares


@pytest.mark.explore
def test_times_are_those_of_each_dispatch(context):
    """A product with 512 times the work takes most of the time, at any position."""

    def outputs(builder):
        small, large = (builder.input(n, float32(s, s)) for n, s in (("a", 64), ("b", 512)))
        return {name: builder.matmul(x, x, label=name)
                for name, x in (("s", small), ("l", large), ("t", builder.neg(small)))}

    graph = build(context, outputs)
    arrays = {"a": np.ones((64, 64), np.float32), "b": np.ones((512, 512), np.float32)}
    shares = [0.0]
    # Other work of the machine affects the others, too.
    while shares[-1] <= 0.8 and len(shares) < 20:
        with context.profile(roofline=False) as profile:
            context.compute(graph, arrays)
        taken = {k.operators: k.seconds for k in profile.report.kernels}
        shares.append(taken["matmul [l]",] / profile.report.kernel_seconds)
    assert shares[-1] > 0.8, shares


def test_cpu_steps_between_are_timed(context):
    with open_context("vulkan", force_cpu=["softmax"], cpu_engine="numpy") as context:
        def outputs(builder):
            x = builder.neg(builder.input("x", float32(4, 4)))
            return {"y": builder.relu(builder.softmax(x, 1))}

        graph = build(context, outputs)
        with context.profile(roofline=False) as profile:
            y = context.compute(graph, {"x": np.zeros((4, 4), np.float32)})["y"]
    assert_allclose(y, np.full((4, 4), 0.25))
    devices = [k.device for k in profile.report.kernels]
    assert devices.count("cpu") == 1 and devices.count("vulkan") == len(devices) - 1 >= 2
    (step,) = [k for k in profile.report.kernels if k.device == "cpu"]
    assert step.operators[0].startswith("softmax") and step.runs == 1 and step.seconds > 0
    assert {h.name: h.count for h in profile.report.host}["CPU steps"] == 1


def test_recordings_with_times_are_used_again_and_given_up(context, monkeypatch):
    from webnn_vk.runtime.executable import DriverExecutable

    made = []
    original = DriverExecutable.timed_recordings
    monkeypatch.setattr(DriverExecutable, "timed_recordings",
                        lambda *given: made.append(original(*given)) or made[-1])
    tensors = Tensors(context, build(context, products(16, 1)))
    tensors.write({"x": np.ones((16, 16), np.float32)})
    with context.profile(roofline=False) as profile:
        for _ in range(20):
            tensors.dispatch()
            tensors.read()
    assert profile.report.runs == 20 and len(made) <= 4
    assert all(recording._native is None for parts in made for recording in parts)


def test_work_that_another_thread_begins_at_the_end_is_waited_for(context, monkeypatch):
    graph = build(context, products(768, 8))
    tensors, late = Tensors(context, graph), []
    profile = context.profile(roofline=False, every=1)
    real = Fence.wait

    def wait(fence, timeout=None):
        done = real(fence, timeout)
        collector = profile._collector
        if collector is not None and not late:
            late.append(context.dispatch(graph, tensors.inputs, tensors.outputs))
            while not collector.runs:
                time.sleep(0.0001)
        return done

    monkeypatch.setattr(Fence, "wait", wait)
    with profile:
        pass
    (run,) = profile._found.runs
    assert 0 < run.begun <= run.submitted < run.done
    assert sum(kernel.runs for kernel in profile.report.kernels) == 8
    assert not profile._collector._spare


def test_a_profile_that_another_thread_enters_meanwhile(context, monkeypatch):
    first, second = context.profile(roofline=False), context.profile(roofline=False)

    def stamp_seconds(device):
        if first._collector is None:
            monkeypatch.undo()
            first.__enter__()
        return 0.0

    monkeypatch.setattr(profile_module, "stamp_seconds", stamp_seconds)
    with pytest.raises(webnn_vk.InvalidStateError, match="profiled already"):
        second.__enter__()
    first.__exit__()
    with second:
        context.fence().wait()
    assert second.report.runs == 0


def test_kernels_of_some_runs_alone(context):
    graph = build(context, products(16, 2))
    tensors = Tensors(context, graph)
    x = np.ones((16, 16), np.float32)
    with context.profile(roofline=False, every=3) as profile:
        for _ in range(7):
            tensors.write({"x": x})
            tensors.dispatch()
            np.testing.assert_array_equal(tensors.read()["y"], x)
    report = profile.report
    assert report.runs == 7 and report.every == 3 and "measured 3 of 7 runs" in report.summary
    assert report.measured == 3
    assert {k.runs for k in report.kernels} == {3}  # the first, the fourth, the seventh
    runs = {e["args"]["run"] for e in profile.trace()["traceEvents"] if e.get("cat") == "kernel"}
    assert runs == {0, 3, 6}
    assert {t.kind: t.count for t in report.transfers} == {"upload": 7, "download": 7}
    for kernel in report.kernels:
        assert kernel.graph_runs == 7 and kernel.total == pytest.approx(kernel.seconds * 7 / 3)
    for wrong in (0, True, 1.5):
        with pytest.raises(TypeError, match="every is a number of runs from 1 on"):
            context.profile(every=wrong)


def priced(monkeypatch, seconds):
    """Profiles assume that a timestamp costs this much."""
    monkeypatch.setattr(profile_module, "stamp_seconds", lambda device: seconds)


def test_as_many_runs_are_measured_as_cost_little(context, monkeypatch):
    graph = build(context, products(16, 2))
    tensors = Tensors(context, graph)
    x = np.ones((16, 16), np.float32)

    def profiled():
        with context.profile(roofline=False) as profile:
            for _ in range(30):
                tensors.write({"x": x})
                tensors.dispatch()
                np.testing.assert_array_equal(tensors.read()["y"], x)
        return profile

    priced(monkeypatch, 1.0)
    profile = profiled()
    report = profile.report
    # The first ones, whatever that costs.
    assert (report.runs, report.measured, report.every) == (30, FIRST, None)
    assert report.overhead > 1 and "measured 5 of 30 runs" in report.summary
    # No impossible share, such as 1060.6 %.
    assert "measuring cost more than half of the time, 1.000 s a timestamp; for truer times " \
        in report.summary and "1.000 s a timestamp" in profile.html()
    assert not re.search(r"\d{3,}\.\d *%", report.summary.replace("100.0%", ""))
    assert {(k.runs, k.graph_runs) for k in report.kernels} == {(FIRST, 30)}
    assert report.total == pytest.approx(report.kernel_seconds * 30 / FIRST)
    events = profile.trace()["traceEvents"]
    assert {e["args"]["run"] for e in events if e.get("cat") == "kernel"} == set(range(FIRST))
    assert {h.name: h.count for h in report.host}["waiting in the queue"] == FIRST
    for transfer in report.transfers:
        assert transfer.seconds > 0 and FIRST <= transfer.count < 30
        assert transfer.bytes == transfer.count * x.nbytes
    # Where timestamps cost nothing, only reading them costs time.
    priced(monkeypatch, 0.0)
    monkeypatch.setattr(Sampler, "spent", lambda *given: None)
    report = profiled().report
    assert (report.runs, report.measured) == (30, 30) and "all measured" in report.summary
    assert {t.kind: t.count for t in report.transfers} == {"upload": 30, "download": 30}


def test_cpu_steps_count_in_the_runs_that_are_measured(monkeypatch):
    priced(monkeypatch, 1.0)
    with open_context("vulkan", force_cpu=["softmax"], cpu_engine="numpy") as context:
        graph = build(context, lambda builder: {
            "y": builder.relu(builder.softmax(builder.neg(builder.input("x", float32(4, 4))), 1))})
        for given in ({}, {"every": 4}):
            with context.profile(roofline=False, **given) as profile:
                for _ in range(FIRST + 3):
                    context.compute(graph, {"x": np.zeros((4, 4), np.float32)})
            report, measured = profile.report, 2 if given else FIRST
            assert report.measured == measured
            assert {k.runs for k in report.kernels} == {measured}
            assert {k.graph_runs for k in report.kernels} == {FIRST + 3}


@pytest.mark.parametrize("driver", [DriverProxy, DoneWhenSubmitted])
def test_segments_behind_cpu_steps_have_the_times_of_their_run(driver):
    context, _ = open_over(driver, force_cpu=["softmax"], cpu_engine="numpy")
    with context:
        graph = build(context, lambda builder: {
            "y": builder.relu(builder.softmax(builder.neg(builder.input("x", float32(4, 4))), 1))})
        with context.profile(roofline=False, every=1) as profile:
            for _ in range(3):
                context.compute(graph, {"x": np.zeros((4, 4), np.float32)})
    events = [e for e in profile.trace()["traceEvents"] if e.get("cat") == "kernel"]
    lines = len(graph.report().lines) - 1
    # While the device works between them, nothing is evaluated.
    host = {h.name: h.seconds for h in profile.report.host}
    assert host["device at work"] >= profile.report.kernel_seconds
    order = [(e["args"]["run"], e["args"]["line"]) for e in sorted(events, key=lambda e: e["ts"])]
    assert order == sorted(order) and len(order) == 3 * lines


def test_a_timestamp_has_a_price(context):
    found = stamp_seconds(context._state.device)
    assert 0 <= found < 0.1


def test_the_page_has_the_graph_with_its_kernels(context):
    pytest.importorskip("fast_sugiyama")
    graph = build(context, products(16, 2))
    with context.profile(roofline=False) as profile:
        context.compute(graph, {"x": np.ones((16, 16), np.float32)})
    text = profile.html()
    (data,) = re.findall(r"^const data = (.*);$", text, re.MULTILINE)
    (drawn,) = json.loads(data)["graphs"]
    assert drawn["title"] == f"as it ran: {len(graph.report().steps)} kernels"
    assert drawn["before"] is None
    boxes = re.findall(r'class="item kernel vulkan".*?</g></g>', drawn["svg"], re.DOTALL)
    assert len(boxes) == len(graph.report().steps)
    assert all("float32[16, 16]" in box and re.search(r"\d%", box) for box in boxes)
    shares = [float(s) for s in re.findall(r"([\d.]+)%<", drawn["svg"])]
    assert sum(shares) == pytest.approx(100, abs=0.2 * len(shares))


def test_a_driver_without_timestamps(tmp_path):
    class Untimed(DriverProxy):
        timestamps = None

    context, _ = open_over(Untimed)
    with context:
        graph = build(context, products(16, 1))
        # (compute() reads and writes in place.)
        square = {"data_type": "float32", "shape": (16, 16)}
        x = context.create_tensor({**square, "writable": True}).result()
        y = context.create_tensor({**square, "readable": True}).result()
        with context.profile() as profile:
            context.write_tensor(x, np.ones((16, 16), np.float32))
            context.dispatch(graph, {"x": x}, {"y": y})
            context.read_tensor(y).result()
    report = profile.report
    assert report.runs == 1 and not report.timed and report.roofline is None
    assert report.kernels == () and "writes no times" in report.summary
    assert {t.kind for t in report.transfers} >= {"upload", "download"}
    profile.save(tmp_path / "report.html")


def test_the_roofline_is_measured(context):
    device = context._state.device
    found = roofline.measure(device)
    assert found is not None and found is roofline.measure(device)
    # Plausible and implausible values for current machines: the probe isn't a constant.
    assert 1e8 < found.flops < 1e16 and 1e7 < found.bandwidth < 1e14
    assert found.seconds(found.flops, 0) == 1 == found.seconds(0, found.bandwidth)


def test_a_device_that_is_lost_before_the_roofline_is_measured(monkeypatch):
    monkeypatch.setattr(roofline, "_known", {})
    context, driver = open_over(FaultyDriver)
    with context:
        monkeypatch.setattr(driver, "precompile", lambda pipelines: driver.lose() or 0)
        assert roofline.measure(context._state.device) is None
        assert driver.injected["lost"] == 1

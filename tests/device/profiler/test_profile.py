"""Profiles of work on a Vulkan device: what is timed, and that the times are true."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import webnn_vk
from tests.support.contexts import open_context, open_over
from tests.support.drivers import require_vulkan
from webnn_vk.driver import DriverProxy
from webnn_vk.ml_graph import executable_of
from webnn_vk.profiler import roofline
from webnn_vk.tools.running import Tensors


@pytest.fixture(autouse=True)
def _vulkan():
    require_vulkan()


@pytest.fixture
def context():
    with open_context("vulkan") as context:
        yield context


def build(context, outputs):
    builder = webnn_vk.MLGraphBuilder(context)
    return builder.build(outputs(builder)).result()


def float32(*shape):
    return {"data_type": "float32", "shape": shape}


def products(size, count):
    """A chain of products with a relu that joins each."""

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
            np.testing.assert_allclose(tensors.read()["y"], x, rtol=1e-5)
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


def test_the_sum_of_the_kernels_is_the_time_of_the_run(context):
    graph = build(context, products(384, 4))
    tensors = Tensors(context, graph)
    tensors.write({"x": np.ones((384, 384), np.float32)})
    tensors.dispatch()
    shares = [0.0]
    # What else the machine does falls between kernels too.
    while max(shares) < 0.9 and len(shares) < 20:
        with context.profile(roofline=False) as profile:
            tensors.dispatch()
        shares.append(profile.report.kernel_seconds / profile.report.seconds)
    assert 0.9 <= max(shares) <= 1.0, shares


def test_times_are_those_of_each_dispatch(context):
    """A product of 512 times the work takes most of the time, wherever it stands."""

    def outputs(builder):
        small, large = (builder.input(n, float32(s, s)) for n, s in (("a", 64), ("b", 512)))
        return {name: builder.matmul(x, x, label=name)
                for name, x in (("s", small), ("l", large), ("t", builder.neg(small)))}

    graph = build(context, outputs)
    arrays = {"a": np.ones((64, 64), np.float32), "b": np.ones((512, 512), np.float32)}
    with context.profile(roofline=False) as profile:
        context.compute(graph, arrays)
    first = profile.report.kernels[0]
    assert first.operators == ("matmul [l]",)
    assert first.seconds > 0.8 * profile.report.kernel_seconds


def test_cpu_steps_between_are_timed(context):
    with open_context("vulkan", force_cpu=["softmax"], cpu_engine="numpy") as context:
        def outputs(builder):
            x = builder.neg(builder.input("x", float32(4, 4)))
            return {"y": builder.relu(builder.softmax(x, 1))}

        graph = build(context, outputs)
        with context.profile(roofline=False) as profile:
            y = context.compute(graph, {"x": np.zeros((4, 4), np.float32)})["y"]
    np.testing.assert_allclose(y, np.full((4, 4), 0.25))
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
    assert all(recording.native is None for parts in made for recording in parts)


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
    assert report.runs == 7 and report.every == 3 and "timed in one run of 3" in report.summary
    assert {k.runs for k in report.kernels} == {3}  # the first, the fourth, the seventh
    runs = {e["args"]["run"] for e in profile.trace()["traceEvents"] if e.get("cat") == "kernel"}
    assert runs == {0, 3, 6}
    assert {t.kind: t.count for t in report.transfers} == {"upload": 7, "download": 7}
    for wrong in (0, True, 1.5):
        with pytest.raises(TypeError, match="every is a number of runs from 1 on"):
            context.profile(every=wrong)


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
        # (What compute() reads and writes it reads and writes in place.)
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
    from webnn_vk.context_state import context_state

    device = context_state(context).device
    found = roofline.measure(device)
    assert found is not None and found is roofline.measure(device)
    # What a machine of this century does, and none does: the probe is no constant.
    assert 1e8 < found.flops < 1e16 and 1e7 < found.bandwidth < 1e14
    assert found.seconds(found.flops, 0) == 1 == found.seconds(0, found.bandwidth)

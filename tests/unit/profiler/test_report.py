"""The report, the trace and the page of a profile on the CPU device, and of synthetic times."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest

import webnn_vk
from webnn_vk.codegen import KernelSpec
from webnn_vk.codegen.spec import Buffer
from webnn_vk.compiler.program import (
    CpuStep,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Program,
    Range,
    ReportLine,
)
from webnn_vk.compiler.program.program import CpuTensor, Slot
from webnn_vk.profiler import Roofline
from webnn_vk.profiler.collect import BatchTimes, Run
from webnn_vk.profiler.report import GraphMemory, MemoryBlock, Recorded, Slice, report_of, title_of
from webnn_vk.profiler.trace import trace

#: Required and optional fields of each phase in Chrome's Trace Event Format.
REQUIRED = {
    "X": {"name", "cat", "ph", "ts", "dur", "pid", "tid"},
    "M": {"name", "ph", "pid", "args"},
    "C": {"name", "ph", "ts", "pid", "args"},
    "b": {"name", "cat", "ph", "id", "ts", "pid", "tid"},
    "e": {"name", "cat", "ph", "id", "ts", "pid", "tid"},
}
OPTIONAL = {"args", "tid"}
METADATA = {"process_name", "thread_name", "thread_sort_index"}


def check_format(text: str) -> list[dict]:
    """The events of a trace, which follows the format; slices of a row are nested or disjoint."""
    read = json.loads(text)
    assert read["displayTimeUnit"] in ("ms", "ns")
    rows: dict[tuple, list] = {}
    opened: Counter = Counter()
    for event in read["traceEvents"]:
        phase = event["ph"]
        assert REQUIRED[phase] <= event.keys() <= REQUIRED[phase] | OPTIONAL, event
        assert isinstance(event["pid"], int) and isinstance(event["name"], str) and event["name"]
        assert isinstance(event.get("tid", 0), int)
        if phase == "M":
            assert event["name"] in METADATA
            continue
        assert isinstance(event["ts"], (int, float)) and event["ts"] >= 0
        if phase == "X":
            assert event["dur"] >= 0
            rows.setdefault((event["pid"], event["tid"]), []).append(event)
        if phase == "C":
            values = list(event["args"].values())
            assert values and all(isinstance(value, (int, float)) for value in values)
        if phase in "be":
            opened[event["cat"], event["id"]] += 1 if phase == "b" else -1
    assert not +opened and not -opened
    for events in rows.values():
        ends: list[float] = []
        for event in sorted(events, key=lambda e: (e["ts"], -e["dur"])):
            while ends and ends[-1] <= event["ts"] + 1e-3:
                ends.pop()
            end = event["ts"] + event["dur"]
            assert not ends or end <= ends[-1] + 1e-3, event
            ends.append(end)
    return read["traceEvents"]


def program() -> Program:
    """Two kernels one after the other, and a CPU step."""
    spec = KernelSpec(
        "none.comp.j2", (Buffer("x", "float32", "r", 1), Buffer("y", "float32", "w", 1))
    )
    vector = webnn_vk.MLOperandDescriptor("float32", [64])
    slots = (Slot("input", 256, name="x", descriptor=vector), Slot("arena", 256, descriptor=vector),
             Slot("host", 256), Slot("output", 256, name="y", descriptor=vector))
    kernels = tuple(
        DispatchStep(spec, (), b"", (Range(n, 0, 256), Range(n + 1, 0, 256)), (1, 1, 1), n)
        for n in range(2)
    )
    sort = CpuStep("sort", {}, {"input": CpuTensor(2, vector)}, (CpuTensor(3, vector),), 2)
    return Program({"x": vector}, {"y": vector}, slots,
                   (DeviceSegment(kernels), HostSegment((sort,))))


@pytest.fixture
def made_up() -> Recorded:
    """Two runs of a graph with two kernels, and one CPU step."""
    lines = (
        ReportLine(("matmul [a]",), "vulkan", "matmul", "nn", (1, 1, 1), 8000, 400),
        ReportLine(("<b>&", "relu"), "vulkan", "elementwise", "flat", (1, 1, 1), 100, 800),
        ReportLine(("sort",), "cpu", "numpy", bytes=64),
    )
    memory = GraphMemory(768, 64, 3, (MemoryBlock(0, 0, 256, 0, 1), MemoryBlock(0, 256, 512, 1, 2)))
    runs = [Run(0, 0.0, 0.5, 0.6, 2.0), Run(0, 1.0, 2.0, 2.1, 4.0)]
    batches = [BatchTimes(1, 0.5, 0.6, 2.0), BatchTimes(2, 2.0, 2.5, 4.0, host=0.25)]
    kernels = [Slice(0, 0, 0, 0.6, 1.6), Slice(0, 0, 1, 1.6, 1.9), Slice(1, 0, 0, 2.2, 3.2),
               Slice(1, 0, 1, 3.2, 3.3)]
    return Recorded(
        "a device", 4.0, Roofline(16000, 1000), True, [lines], [memory], runs, batches, kernels,
        [Slice(1, 0, 2, 3.4, 3.65, 2)], [("upload", 100, 2.1, 2.2), ("upload", 50, 3.7, 3.8)],
        [program()], counts=[2],
    )


def test_sums_of_kernels(made_up):
    report = report_of(made_up)
    product, relu, sort = report.kernels
    assert (product.operators, product.runs, product.seconds) == (("matmul [a]",), 2, 2.0)
    assert (product.mean, product.gflops, product.gigabytes) == (1.0, 8e-6, 4e-7)
    # The product is bound by arithmetic (8000 of 16000), relu by memory (800 of 1000).
    assert product.share_of(report.roofline) == 0.5
    assert relu.share_of(report.roofline) == pytest.approx(0.8 / 0.2)
    assert sort.device == "cpu" and sort.share_of(report.roofline) is None
    assert product.share_of(None) is None
    # Twice 8000 / 16000 and 800 / 1000, of 2.4 seconds; CPU steps don't count.
    assert report.share == pytest.approx(2 * (0.5 + 0.8) / 2.4)
    assert report.summary.endswith(", of which the kernels reach 108%")
    assert replace(report, roofline=None).share is None
    assert report.kernel_seconds == pytest.approx(2.4) and report.host_seconds == 0.25


def test_sums_of_the_host_and_of_transfers(made_up):
    report = report_of(made_up)
    host = {h.name: (h.count, pytest.approx(h.seconds)) for h in report.host}
    assert host == {
        "waiting in the queue": (2, 1.5), "putting together": (2, 0.1 + 0.25),
        "CPU steps": (1, 0.25), "device at work": (2, 1.4 + 1.5),
    }
    (upload,) = report.transfers
    assert (upload.kind, upload.count, upload.bytes) == ("upload", 2, 150)
    assert upload.seconds == pytest.approx(0.2)


def test_tables(made_up):
    report = report_of(made_up)
    text = str(report)
    assert re.search(r"^75\.5% +1\.000 s +2 +matmul \[a\] +vulkan +matmul +nn .* 50%$", text,
                     re.M)
    assert "2 runs in 4.000 s, all measured: kernels 2.400 s, CPU steps 250.00 ms" in text
    html = report._repr_html_()
    assert "&lt;b&gt;&amp;" in html and "<b>" not in html


def test_trace_of_made_up_times(made_up):
    events = check_format(json.dumps(trace(made_up)))
    slices = [(e["cat"], e["name"], e["ts"], e["dur"]) for e in events if e["ph"] == "X"]
    assert ("kernel", "matmul [a]", 600000, 1e6) in slices
    assert Counter(kind for kind, *_ in slices) == {
        "host": 2, "cpu": 1, "kernel": 4, "transfer": 2
    }
    live = [e["args"]["bytes"] for e in events if e["ph"] == "C"]
    assert live == [256, 768, 256, 768]


def test_a_trace_out_of_form_is_found(made_up):
    made_up.kernels.append(Slice(0, 0, 0, 1.5, 1.7))
    with pytest.raises(AssertionError):
        check_format(json.dumps(trace(made_up)))


def test_long_titles_are_cut():
    assert title_of(["a"] * 8) == " + ".join("a" * 8)
    assert title_of(["a"] * 10) == " + ".join("a" * 8) + " … and 2 more"


# -- on the CPU device -----------------------------------------------------------------------------
@pytest.fixture
def context():
    settings = webnn_vk.Settings(device="cpu", cpu_engine="numpy")
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        yield context


def add_one(context):
    builder = webnn_vk.MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [4]})
    return builder.build({"y": builder.add(x, builder.constant("float32", 1))}).result()


def test_a_profile_on_the_cpu(context, tmp_path):
    graph = add_one(context)
    with context.profile() as profile:
        for _ in range(3):
            y = context.compute(graph, {"x": np.arange(4, dtype=np.float32)})["y"]
    assert y.tolist() == [1, 2, 3, 4]
    (step,) = profile.report.kernels
    assert (step.runs, step.device, step.kernel) == (3, "cpu", "numpy")
    assert 0 < step.seconds < profile.report.seconds
    assert profile.report.runs == 3 and profile.report.timed
    for name in ("trace.json", "report.html"):
        profile.save(tmp_path / name)
    events = check_format((tmp_path / "trace.json").read_text())
    assert Counter(e.get("cat") for e in events if e["ph"] == "X")["cpu"] == 3
    assert (tmp_path / "report.html").read_text().startswith("<!doctype html>")
    assert "runs in" in repr(profile) and "numpy" in str(profile)
    with pytest.raises(ValueError, match="neither NAME.json nor NAME.html"):
        profile.save(tmp_path / "report.pdf")


def test_what_was_computed_at_once_is_again_afterwards(context):
    graph = add_one(context)
    with context.profile():
        pass
    with context.profile() as profile:
        pass
    assert profile.report.kernels == () and profile.report.runs == 0
    assert context.compute(graph, {"x": np.zeros(4, np.float32)})["y"].tolist() == [1] * 4


def test_one_profile_at_a_time(context):
    with context.profile() as profile:
        with pytest.raises(webnn_vk.InvalidStateError, match="profiled already"):
            context.profile().__enter__()
        with pytest.raises(webnn_vk.InvalidStateError, match="after the with statement"):
            _ = profile.report
    with pytest.raises(webnn_vk.InvalidStateError, match="entered once"):
        profile.__enter__()


def test_a_profile_of_what_fails(context):
    with pytest.raises(RuntimeError, match="mine"), context.profile() as profile:
        raise RuntimeError("mine")
    assert profile.report.runs == 0
    with context.profile() as profile:
        context.destroy()
    assert profile.report.runs == 0
    with pytest.raises(webnn_vk.InvalidStateError):
        context.profile()

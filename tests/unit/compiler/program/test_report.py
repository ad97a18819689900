"""The report describes, for every dispatch, the program's work."""

from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.program import DispatchStep, Target, compile_program


def compiled(**options):
    emit = Emitter()
    a = graph_input("a", (64, 48))
    low, high = emit.split(a, 2, axis=1)
    y = emit.softmax(emit.matmul(emit.tanh(low), emit.transpose(high)), 1, label="soft")
    graph = graph_of(emit, {"y": y, "low": low, "again": y}, a)
    program, _ = compile_program(graph, Target(stored_profile(), **options))
    return program


def test_a_line_for_each_dispatch_with_its_own_figures():
    program = compiled(skip=("fuse",))
    report = program.report
    dispatches = [s for s in program.device_steps if isinstance(s, DispatchStep)]
    lines = [line for line in report.lines if line.groups is not None]
    assert [(s.kernel, s.variant, s.groups, s.flops, s.bytes) for s in dispatches] == [
        (n.kernel, n.variant, n.groups, n.flops, n.bytes) for n in lines
    ]
    for step in report.steps:
        assert step.dispatches == len(step.parts)
        assert step.flops == sum(part.flops for part in step.parts)
        assert step.bytes == sum(part.bytes for part in step.parts)
        assert (step.kernel, step.variant) == (step.parts[0].kernel, step.parts[0].variant)
    split = report.steps[0]
    assert split.operators == ("split",) and len(split.parts) == 2
    assert [part.bytes for part in split.parts] == [2 * 64 * 24 * 4] * 2
    shown = str(report).splitlines()
    assert len(shown) == 1 + len(report.lines) + 1
    assert sum(line.startswith("split ") for line in shown) == 2


def test_copies_between_device_and_cpu_are_lines():
    report = compiled(force_cpu=("softmax",)).report
    copies = [line for line in report.lines if line.kernel == "copy" and line.groups is None]
    assert [line.variant for line in copies] == [
        "device to CPU", "CPU to output 'y'", "output 'y' to output 'again'",
    ]
    assert [line.bytes for line in copies] == [2 * 64 * 64 * 4] * 3
    assert report.copies == 3 and "3 copies" in str(report)
    (cpu,) = [step for step in report.steps if step.device == "cpu"]
    assert cpu.operators == ("softmax [soft]",) and cpu.reason == "forced to the CPU"
    assert cpu.dispatches == 0 and cpu.kernel == "numpy"
    assert [line.device for line in report.lines].count("cpu") == 1

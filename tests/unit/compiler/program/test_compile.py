import numpy as np
import pytest

from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Node
from webnn_vk.compiler.program import (
    CopyStep,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Target,
    compile_program,
)
from webnn_vk.compiler.program.program import BarrierStep


def chain(*operators: str):
    emit = Emitter()
    a = graph_input("a", (2, 64))
    value = a
    for name in operators:
        value = getattr(emit, name)(value)
    return graph_of(emit, {"y": value}, a)


def kinds(program) -> list[list[str]]:
    return [
        ["host"] if isinstance(s, HostSegment) else [type(step).__name__ for step in s.steps]
        for s in program.segments
    ]


def test_the_cpu_device_gets_one_host_segment():
    program, _ = compile_program(chain("exp", "neg"), Target(None))
    assert kinds(program) == [["host"]]
    assert program.report.count("cpu") == 2
    assert {step.reason for step in program.report.steps} == {"the CPU device was chosen"}


def test_a_chain_is_one_dispatch_when_fused_and_many_with_barriers_when_not():
    profile = stored_profile()
    assert kinds(compile_program(chain("exp", "neg", "relu"), Target(profile))[0]) == [
        ["DispatchStep"]
    ]
    plain, _ = compile_program(chain("exp", "neg", "relu"), Target(profile, skip=("fuse",)))
    assert kinds(plain) == [
        ["DispatchStep", "BarrierStep", "DispatchStep", "BarrierStep", "DispatchStep"]
    ]
    assert [step.operators for step in plain.report.steps] == [("exp",), ("neg",), ("relu",)]


def test_outputs_are_written_in_place_and_intermediates_share_memory():
    unfused = Target(stored_profile(), skip=("fuse",))
    program, _ = compile_program(chain(*["exp", "neg"] * 4), unfused)
    (segment,) = program.segments
    dispatches = [s for s in segment.steps if isinstance(s, DispatchStep)]
    assert program.slots[dispatches[0].bindings[0].slot].kind == "input"
    assert program.slots[dispatches[-1].bindings[-1].slot].kind == "output"
    # Two intermediates are alive at a time, of 512 bytes each.
    assert program.arenas == (1024,)


def test_independent_nodes_need_no_barrier():
    emit = Emitter()
    a = graph_input("a", (8,))
    graph = graph_of(emit, {"x": emit.exp(a), "y": emit.neg(a)}, a)
    assert kinds(compile_program(graph, Target(stored_profile()))[0]) == [["DispatchStep"] * 2]


def test_views_cost_nothing_until_they_are_outputs():
    emit = Emitter()
    a = graph_input("a", (2, 6))
    inner = emit.reshape(emit.exp(a), (3, 4))
    y = emit.reshape(emit.neg(inner), (12,))
    unfused = Target(stored_profile(), skip=("fuse",))
    program, _ = compile_program(graph_of(emit, {"y": y}, a), unfused)
    assert kinds(program) == [["DispatchStep", "BarrierStep", "DispatchStep"]]
    # A view of a view refers to the first one's source, whose memory is not reused meanwhile.
    emit = Emitter()
    twice = emit.reshape(emit.reshape(emit.exp(a), (3, 4)), (2, 6))
    graph = graph_of(emit, {"y": emit.mul(twice, emit.sqrt(a))}, a)
    (segment,) = compile_program(graph, Target(stored_profile(), skip=("fuse",)))[0].segments
    first, second, _, third = segment.steps
    assert third.bindings[:2] == (first.bindings[-1], second.bindings[-1])
    assert first.bindings[-1] != second.bindings[-1]
    # A view of an input has no kernel to write it: it is copied.
    emit = Emitter()
    graph = graph_of(emit, {"y": emit.reshape(a, (12,))}, a)
    assert kinds(compile_program(graph, Target(stored_profile()))[0]) == [["CopyStep"]]


def test_one_value_under_two_names_is_copied_to_the_second():
    emit = Emitter()
    a = graph_input("a", (4,))
    y = emit.exp(a)
    program, _ = compile_program(graph_of(emit, {"x": y, "y": y}, a), Target(stored_profile()))
    assert kinds(program) == [["DispatchStep", "BarrierStep", "CopyStep"]]


def test_forced_operators_go_to_the_cpu_with_copies_at_the_borders_only():
    graph = chain("exp", "neg", "abs", "relu", "sqrt")
    program, _ = compile_program(
        graph, Target(stored_profile(), force_cpu=("neg", "abs"), skip=("fuse",))
    )
    assert kinds(program) == [
        ["DispatchStep", "BarrierStep", "CopyStep"],
        ["host"],
        ["CopyStep", "BarrierStep", "DispatchStep", "BarrierStep", "DispatchStep"],
    ]
    host = program.segments[1]
    assert [step.operator for step in host.steps] == ["neg", "abs"]
    places = [t for s in host.steps for t in (*s.operands.values(), *s.results)]
    assert [program.slots[t.slot].kind for t in places] == ["host", "array", "array", "host"]
    assert [s.device for s in program.report.steps] == ["vulkan", "cpu", "cpu", "vulkan", "vulkan"]
    assert program.report.steps[1].reason == "forced to the CPU"


def test_the_work_for_cpu_nodes_grows_with_their_number(monkeypatch: pytest.MonkeyPatch):
    asked = 0

    def on_cpu(self: Node) -> bool:
        nonlocal asked
        asked += 1
        return self.device == "cpu"

    monkeypatch.setattr(Node, "on_cpu", property(on_cpu))
    graph, target = chain(*["tanh"] * 200), Target(stored_profile(), force_cpu=["tanh"])
    program, _ = compile_program(graph, target)
    assert program.report.count("cpu") == 200
    assert asked < 20 * 200


def test_what_has_no_shader_goes_to_the_cpu_and_says_why():
    target = Target(stored_profile(), available=lambda spec: False, skip=("fuse",))
    program, _ = compile_program(chain("exp"), target)
    assert [s.device for s in program.report.steps] == ["cpu"]
    assert "no shader" in program.report.steps[0].reason


def test_unknown_operators_to_force_are_named():
    with pytest.raises(ValueError, match="no operator is called frobnicate"):
        compile_program(chain("exp"), Target(stored_profile(), force_cpu=("frobnicate", "exp")))


def test_folding_is_reported_and_can_be_left_out():
    emit = Emitter()
    a = graph_input("a", (2,))
    c = emit.neg(emit.constant(np.array([1, 2], np.float32)), label="c")
    graph = graph_of(emit, {"y": emit.add(a, c)}, a)
    assert compile_program(graph, Target(stored_profile()))[0].report.folded == ("neg [c]",)
    unfolded = compile_program(graph, Target(stored_profile(), skip=("fold",)))[0].report
    assert unfolded.folded == ()
    assert [step.operators for step in unfolded.steps] == [("neg [c]", "add")]


def test_steps_are_plain_data():
    program, _ = compile_program(chain("exp"), Target(stored_profile("amd_navi31")))
    (segment,) = program.segments
    assert isinstance(segment, DeviceSegment)
    step = segment.steps[0]
    assert isinstance(step, DispatchStep) and not isinstance(step, (CopyStep, BarrierStep))
    assert len(step.push) == step.spec.param_bytes
    assert step.groups[1:] == (1, 1)

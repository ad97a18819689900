"""Programs without their set-up."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.graphs import graph_input, graph_of
from tests.support.packing import Transposed, show
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.kernels.dispatch import Packed
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.program.after_setup import after_setup
from webnn_vk.compiler.program.assemble import assemble
from webnn_vk.compiler.program.verify import verify
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

PROFILE = stored_profile("nvidia_ampere")


def test_packed_forms_become_constants():
    data = np.arange(20, dtype=np.float32).reshape(4, 5)
    value = Value(MLOperandDescriptor("float32", (4, 5)), data=data)
    other = Value(MLOperandDescriptor("float32", (4, 4)), data=np.ones((4, 4), np.float32))
    forms = [Packed(value, Transposed(2, True)), Packed(other, Transposed())]
    program, _ = assemble(show(PROFILE, forms, [value]), PROFILE)
    assert len(program.setup) == 2
    form = after_setup(program)
    verify(form.program)
    assert form.program.setup == ()
    # The first is also read unpacked; of the second only the packed form is left.
    kinds = [program.slots[slot].kind for slot in form.sources]
    assert sorted(kinds) == ["constant", "packed", "packed"]
    sizes = [descriptor.byte_length for descriptor in form.program.constants]
    assert sorted(sizes) == sorted(
        [80] + [program.slots[part.target].size for part in program.setup]
    )
    assert form.program.segments == program.segments
    assert form.program.report.weight_bytes == program.report.weight_bytes
    assert not any(slot.kind in ("packed", "scratch") for slot in form.program.slots)
    again = after_setup(form.program)
    assert again.program == form.program
    slots = form.program.slots
    assert [slots[slot].index for slot in again.sources] == list(range(len(again.sources)))


@pytest.mark.parametrize("profile", [PROFILE, None], ids=["device", "cpu"])
def test_a_program_without_set_up_stays_as_it_is(profile):
    emit = Emitter()
    a = graph_input("a", (2, 6))
    c = emit.constant(np.arange(12, dtype=np.float32).reshape(2, 6))
    graph = graph_of(emit, {"y": emit.add(emit.softmax(a, axis=1), c)}, a)
    program, _ = compile_program(graph, Target(profile))
    assert after_setup(program).program == program.__class__(
        **{**vars(program), "report": after_setup(program).program.report}
    )


def test_copies_for_cpu_steps_are_their_own_source():
    emit = Emitter()
    a = graph_input("a", (4,))
    tensor = Value(MLOperandDescriptor("float32", (4,)), source="a tensor's memory")
    graph = graph_of(emit, {"y": emit.tanh(emit.concat([a, tensor], 0))}, a)
    program, _ = compile_program(graph, Target(PROFILE, force_cpu=("concat",)))
    (part,) = program.setup
    form = after_setup(program)
    verify(form.program)
    (kept,) = form.program.setup
    assert (kept.target, kept.steps) == (part.target, part.steps)
    assert form.sources == (part.target,)
    assert form.program.constants == program.constants

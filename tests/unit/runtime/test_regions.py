"""Cutting CPU segments for an engine: pure data."""

from webnn_vk.compiler.program import CopyStep, CpuStep, CpuTensor, HostSegment, Range
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.runtime.regions import cut

FOUR = MLOperandDescriptor("float32", (4,))


def tensor(slot):
    return CpuTensor(slot, FOUR)


def step(operator, reads, makes, dead=()):
    operands = {name: tensor(slot) for name, slot in zip("abc", reads, strict=False)}
    return CpuStep(operator, {}, operands, (tensor(makes),), makes, tuple(dead))


def parts(*steps, on_engine=lambda s: s.operator != "pow", memory=()):
    made = cut(HostSegment(steps), on_engine, lambda slot: slot in memory)
    return [
        (
            part.on_engine,
            [s.operator if isinstance(s, CpuStep) else "copy" for s in part.steps],
            [t.slot for t in part.reads], [t.slot for t in part.writes], list(part.dead),
        )
        for part in made
    ]


def test_all_of_it_is_one_part():
    made = parts(step("add", [0, 1], 2), step("relu", [2], 3, [0, 1, 2, 3]), memory={0, 1, 3})
    assert made == [(True, ["add", "relu"], [0, 1], [3], [0, 1, 2, 3])]


def test_what_can_wait_joins_a_later_part():
    """exp doesn't depend on pow: it goes with the first part, though it comes after pow."""
    made = parts(
        step("add", [0, 0], 1), step("pow", [1, 1], 2), step("exp", [0], 3),
        step("mul", [2, 3], 4, [0, 1, 2, 3, 4]), memory={0, 4},
    )
    assert made == [
        (True, ["add", "exp"], [0], [1, 3], [0]),
        (False, ["pow"], [1], [2], [1]),
        (True, ["mul"], [2, 3], [4], [2, 3, 4]),
    ]


def test_values_that_another_segment_reads_are_written():
    made = parts(step("add", [0, 0], 1), step("exp", [1], 2, [0, 2]), memory={0})
    # 1 is not dead here: a later segment reads it.
    assert made == [(True, ["add", "exp"], [0], [1], [0, 2])]


def test_views_alone_are_not_worth_a_session():
    made = parts(step("reshape", [0], 1, [0, 1]), memory={0, 1})
    assert [on_engine for on_engine, *_ in made] == [False]
    made = parts(step("reshape", [0], 1), step("exp", [1], 2, [0, 1, 2]), memory={0, 2})
    assert [on_engine for on_engine, *_ in made] == [True]


def test_copies_come_behind_what_they_copy():
    copy = CopyStep(Range(1, 0, 16), Range(2, 0, 16))
    made = parts(step("exp", [0], 1, [0, 1]), copy, memory={0, 1, 2})
    assert [(side, steps) for side, steps, *_ in made] == [(True, ["exp"]), (False, ["copy"])]
    assert made[0][3] == [1]

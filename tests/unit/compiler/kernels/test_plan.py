"""The planner: tuned schedules first, then the rules' choice, among available modules."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.support.profiles import stored_profile
from tests.support.running import node_of
from webnn_vk.compiler.kernels import (
    KernelNode,
    KernelTarget,
    Schedule,
    Task,
    Unsupported,
    forms,
    packing_of,
    plan,
    solver_of,
)
from webnn_vk.compiler.kernels.dispatch import KernelRefused
from webnn_vk.compiler.kernels.plan import MOST_SCHEDULES
from webnn_vk.compiler.kernels.schedule import problem_class
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

TARGET = KernelTarget(stored_profile("nvidia_ampere"))


def _node(operator: str, *shapes: tuple[int, ...], **arguments: object) -> KernelNode:
    given = [MLOperandDescriptor("float32", shape) for shape in shapes]
    return KernelNode.of(node_of(operator, *given, **arguments)[0])


PRODUCT = _node("matmul", (128, 128), (128, 128))


def test_equal_targets_give_equal_plans() -> None:
    assert plan(PRODUCT, TARGET) == plan(PRODUCT, replace(TARGET))


def test_another_schedule_where_a_module_is_refused() -> None:
    usual = plan(PRODUCT, TARGET)
    refused = {(d.spec, None): "planted" for d in usual.dispatches}
    other = plan(PRODUCT, replace(TARGET, refused=refused))
    assert other.schedule != usual.schedule and other.refusal == "planted" and not usual.refusal
    assert not {d.spec for d in usual.dispatches} & {d.spec for d in other.dispatches}


def test_few_schedules_are_tried_where_all_are_refused() -> None:
    refused: dict = {}
    with pytest.raises(KernelRefused, match="planted"):
        for _ in range(MOST_SCHEDULES + 1):
            made = plan(PRODUCT, replace(TARGET, refused=dict(refused)))
            refused |= {(d.spec, d.specialised): "planted" for d in made.dispatches}
    assert len(refused) >= MOST_SCHEDULES


def test_a_module_that_can_not_be_had_has_no_plan() -> None:
    with pytest.raises(Unsupported, match="no shader for matmul"):
        plan(PRODUCT, replace(TARGET, available=lambda spec: False))


def test_a_tuned_schedule_outranks_the_rules_and_packs_for_itself() -> None:
    a, b = MLOperandDescriptor("float32", (64, 64)), np.zeros((64, 256), np.float32)
    node = KernelNode.of(node_of("matmul", a, b)[0])
    solver, problem = solver_of(node)
    wanted = Schedule("matmul", (("LX", 8), ("LY", 8), ("TM", 4), ("TN", 4)))
    target = replace(TARGET, tuned={(solver.name, problem_class(problem)): wanted})
    assert plan(node, target).schedule == wanted != plan(node, TARGET).schedule
    panels = next(forms(Task.of(node), wanted, TARGET))
    assert panels.problem.panel == 32
    assert plan(node, target).dispatches[0].params["b_panel"] == 32 * 64


def test_a_weight_stays_as_it_is_where_its_packed_form_is_refused() -> None:
    a, b = MLOperandDescriptor("float32", (64, 64)), np.zeros((64, 256), np.float32)
    node = KernelNode.of(node_of("matmul", a, b)[0])
    usual = plan(node, TARGET)
    packing = [d.spec for d in packing_of(usual.dispatches, TARGET.profile)]
    assert packing
    for without in (
        replace(TARGET, refused={(spec, None): "planted" for spec in packing}),
        replace(TARGET, available=lambda spec: spec not in packing),
    ):
        other = plan(node, without)
        assert other.schedule == usual.schedule
        assert not [*packing_of(other.dispatches, TARGET.profile)]
        assert other.refusal == ("planted" if without.refused else "")
    assert plan(node, replace(TARGET, packs=False)).dispatches == other.dispatches


def test_problems_of_other_families() -> None:
    """Each is solved by the family that its problem belongs to."""
    pointwise = _node("conv2d", (1, 8, 4, 4), (8, 8, 1, 1))
    pooled = _node("average_pool2d", (1, 8, 4, 4))
    windows = _node("average_pool2d", (1, 8, 4, 4), window_dimensions=[2, 2])
    assert [solver_of(n)[0].name for n in (PRODUCT, pointwise, pooled, windows)] == [
        "matmul", "matmul", "reduce", "pool"
    ]

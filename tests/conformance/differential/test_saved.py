"""Programs of every operator satisfy the invariants of programs and survive being saved and loaded.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, given, settings

from tests.conformance.differential.drafting import examples
from tests.support import models
from tests.support.loading import set_up
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.program.serial import load, save
from webnn_vk.compiler.program.verify import verify

EXAMPLES = 4


@pytest.mark.parametrize("name", sorted(OPERATORS))
def test_programs_of(name, cpu_context, tmp_path_factory):
    @settings(
        max_examples=EXAMPLES, deadline=None, database=None,
        phases=(Phase.generate, Phase.shrink), suppress_health_check=list(HealthCheck),
    )
    @given(examples(name))
    def check(example):
        builder = MLGraphBuilder(cpu_context)
        made, feeds = example.add_to(builder, "")
        outputs = {f"y{i}": operand for i, operand in enumerate(made)}
        graph = models.capture(cpu_context, lambda: builder.build(outputs))
        profile = stored_profile("adreno_minimum")
        cpu = Target(None, skip=("fold",))
        for target in (cpu, Target(profile), Target(profile, force_cpu=(name,), skip=("fold",))):
            program, constants = compile_program(graph, target)
            verify(program)
            folder = tmp_path_factory.mktemp("program")
            save(program, constants, folder)
            saved = load(folder)
            again, store = saved.program, saved.constants
            assert replace(again, report=program.report) == program
            if target is cpu:
                used = {key: array for key, array in feeds.items() if key in graph.inputs}
                results = [
                    cpu_context.compute(set_up(cpu_context, *each), used)
                    for each in ((program, constants), (again, store))
                ]
                for key, array in results[0].items():
                    np.testing.assert_array_equal(results[1][key], array)

    check()

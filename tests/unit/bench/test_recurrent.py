"""The benchmarks' recurrent graph: every step and both directions count."""

import numpy as np

from bench.models import recurrent
from tests.support.discriminating import assert_allclose


def test_every_step_and_both_directions_count(cpu_context):
    random = np.random.default_rng(1)
    sequence = random.standard_normal(recurrent.INPUT_SHAPE, np.float32)
    with recurrent.build(cpu_context).result() as graph:
        classes = cpu_context.compute(graph, {"sequence": sequence})["classes"]
        assert classes.shape == (recurrent.BATCH, recurrent.CLASSES)
        assert_allclose(classes.sum(axis=1), 1, rtol=1e-5)
        for step in (0, recurrent.STEPS - 1):
            changed = sequence.copy()
            changed[step] = 0
            other = cpu_context.compute(graph, {"sequence": changed})["classes"]
            assert np.abs(other - classes).max() > 1e-5, step

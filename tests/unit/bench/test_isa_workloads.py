"""The workloads that peers are captured on: our programs, and what they execute."""

import pytest

from bench.isa import beside_child
from bench.isa.capture import read_module
from bench.isa.execution import Inputs, executed
from tests.support.gpu_shaders import needs_compiler
from tests.support.profiles import stored_profile

#: Millions of multiplications: as many as the tiles of the workload's products have, and at most so
#: many times as many, since tiles reach over edges and other kernels multiply too.
PRODUCTS = {
    "matmul_512": (512**3 / 1e6, 1.01),
    "conv1x1_28x28_128_512": (128 * 512 * 28 * 28 / 1e6, 1.15),
    "conv3x3_56x56_64_64": (36 * 64 * 64 * 14 * 14 / 1e6, 1.4),
    "dwconv3x3_112x112_32": (9 * 32 * 112 * 112 / 1e6, 1.05),
    "bert_2l_128": (2 * (12 * 768**2 * 128 + 2 * 768 * 128**2) / 1e6, 1.1),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=() if name.startswith(("conv1x1", "dwconv")) else pytest.mark.explore)
    for name in PRODUCTS
])
def test_a_program_multiplies_as_often_as_its_products_take(name):
    needs_compiler()
    kept = beside_child.ours(stored_profile("amd_navi31").masked(["cooperative_matrix"]), name)
    total = 0
    for d in kept.capture.dispatches:
        code, pipeline = kept.codes[d.pipeline], kept.capture.pipelines[d.pipeline]
        layout = read_module(code, pipeline.constants)
        inputs = Inputs(d.groups, layout.local_size, d.push)
        loop = executed(code, pipeline.constants, pipeline.entry, inputs)
        x, y, z = d.groups
        total += loop.all_work[0] * layout.invocations * x * y * z
    least, most = PRODUCTS[name]
    assert least <= total / 1e6 <= least * most

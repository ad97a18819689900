"""The archive of precompiled shaders serves every operator and data type, without any compiler."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bench.isa.catalogue import catalogue
from bench.isa.graphs import GRAPHS, described
from tests.conformance.differential.drafting import examples
from tests.conformance.wpt import conformance, suite
from tests.support.built_archive import built_archive
from tests.support.paths import ROOT
from tests.support.profiles import NAMES, stored_profile
from tests.support.selection import chance
from tests.support.summary import LINE
from webnn_vk import MLGraphBuilder
from webnn_vk.codegen.archive import ShaderArchive
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.kernels.loads import SHUFFLES, SUBGROUP_SUMS
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.tools.shader_archive import specs

# The first of them waits for the archive to be made: a minute on an idle machine.
pytestmark = pytest.mark.timeout(900)

TYPES = ("float16", "int8", "int16", "int64")


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> ShaderArchive:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler to make the pack with")
    return ShaderArchive(built_archive(tmp_path_factory.mktemp("pack")))


@pytest.fixture(scope="module")
def known() -> frozenset[KernelSpec]:
    return frozenset(specs())


def test_size(pack, record_property):
    size = Path(pack.path).stat().st_size
    record_property(LINE, f"pack: {len(pack)} modules, {size / 1e6:.2f} MB")
    assert len(pack) > 500 and size < 6_000_000


def test_it_has_kernels_for_native_and_for_emulated_types(known):
    """Other families' in `test_random_examples_need_no_other_kernel`."""
    families = ("matmul", "block_product", "conv")
    for types in (frozenset(TYPES), frozenset()):
        assert set(catalogue(SHUFFLES | SUBGROUP_SUMS | types, *families)) <= known
        # With the kernels for processors whose lanes can't exchange what they load, or add up their
        # sums, the archive would be too large.
        missing = set(catalogue(types, *families)) - known
        assert {spec.template for spec in missing} <= {
            "matmul.comp.j2", "matvec_blocks.comp.j2", "winograd_product.comp.j2",
        }
        assert all(any(b.load == "texel" for b in spec.buffers) for spec in missing)


@pytest.mark.parametrize("mask", [
    pytest.param("", id="native"),
    pytest.param(",".join(TYPES), id="masked", marks=pytest.mark.explore),
])
@pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT)
def test_conformance_without_a_compiler(pack, mask, tmp_path, record_property, vulkan, request):
    """Vectors of some files; `test_random_examples_need_no_other_kernel` has every operator."""
    chosen = [f for f in suite.files("conformance") if any(conformance.cases(f))]
    if not request.config.option.explore:
        chosen = chance("pack").sample(chosen, 30)
    tools = tmp_path / "bin"
    tools.mkdir()
    environment = {
        **os.environ, "WEBNN_VK_GLSLANG": "none", "WEBNN_VK_PACK": str(pack.path),
        "WEBNN_VK_CACHE": str(tmp_path / "cache"), "PATH": str(tools), "WEBNN_VK_MASK": mask,
    }
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.wpt.conformance", "--variant", "inputs",
         "--file", *chosen],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900,
    )
    text = done.stdout + done.stderr
    assert done.returncode == 0, text[-4000:]
    last = done.stdout.splitlines()[-1]
    assert last.startswith("passed ") and " failed 0 " in last and last.endswith(" cpu_steps 0")
    # All modules come from the archive: nothing was compiled, so nothing was cached.
    assert not list(tmp_path.glob("cache/**/*.spv"))
    record_property(LINE, f"without a compiler{', masked' if mask else ''}: {last}")


@pytest.mark.parametrize("name", [n for n in GRAPHS if "minilm" not in n])
def test_models_need_no_other_kernel(name, known):
    """Every stored profile computes all of a model by modules of the archive. Nothing is run."""
    graph = described(GRAPHS[name])
    for profile in map(stored_profile, NAMES):
        target = Target(profile, available=known.__contains__, has_compiler=False)
        program, _ = compile_program(graph, target)
        on_cpu = [step for step in program.report.steps if step.device == "cpu"]
        assert not on_cpu, f"{profile.name}: {on_cpu}"
        assert known.issuperset(program.kernels), profile.name


@pytest.mark.parametrize("name", sorted(ALL_OPERATORS))
def test_random_examples_need_no_other_kernel(name, cpu_context, known):
    """For the stored profiles, whose plans differ, as a library without a compiler plans: all is on
    the device. Nothing is run."""
    profiles = [stored_profile(p) for p in NAMES]
    profiles.append(profiles[0].masked(TYPES))

    @settings(
        max_examples=max(2, settings.default.max_examples // 60), deadline=None, database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), print_blob=False,
    )
    @given(st.lists(examples(name), min_size=6, max_size=6))
    def check(batch):
        if all(example.is_one() for example in batch):
            return  # the first one of hypothesis
        builder = MLGraphBuilder(cpu_context)
        outputs = {}
        for i, example in enumerate(batch):
            made, _ = example.add_to(builder, f"{i}.")
            outputs |= {f"{i}.{k}": operand for k, operand in enumerate(made)}
        graph = builder._graph(outputs)
        for profile in profiles:
            target = Target(
                profile, available=known.__contains__, has_compiler=False, skip=("fold",)
            )
            program, _ = compile_program(graph, target)
            on_cpu = [step for step in program.report.steps if step.device == "cpu"]
            assert not on_cpu, f"{profile.name}: {on_cpu}"
            missing = [spec for spec in program.kernels if spec not in known]
            assert not missing, f"{profile.name}: {missing}"

    check()

"""The archive of precompiled shaders serves every operator and data type, without any compiler."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bench.isa.graphs import GRAPHS, described
from tests.conformance.differential.drafting import examples
from tests.conformance.wpt import conformance, suite
from tests.support.built_archive import built_archive, kernels_of
from tests.support.paths import ROOT
from tests.support.profiles import NAMES, stored_profile
from tests.support.selection import chance
from tests.support.summary import LINE
from webnn_vk import MLGraphBuilder
from webnn_vk.codegen.archive import ShaderArchive
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.kernels import all_modules
from webnn_vk.compiler.kernels.loads import SHUFFLES, SUBGROUP_SUMS
from webnn_vk.compiler.ops import ALL_OPERATORS
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.tools import samples

# The first of them waits for the archive to be made: a minute on an idle machine.
pytestmark = pytest.mark.timeout(900)

TYPES = ("float16", "int8", "int16", "int64")
#: Operators that become many kernels.
MANY_STEPS = {"gru", "gru_cell", "lstm", "lstm_cell", "lstm_recurrence"}


@pytest.fixture(scope="module")
def pack(tmp_path_factory: pytest.TempPathFactory) -> ShaderArchive:
    if find_compiler() is None:
        pytest.skip("no GLSL compiler to make the pack with")
    return ShaderArchive(built_archive(tmp_path_factory.mktemp("pack")))


@pytest.fixture(scope="module")
def known(pack: ShaderArchive) -> Callable[[KernelSpec], bool]:
    return kernels_of(pack.path)


def test_size(pack, record_property):
    size = Path(pack.path).stat().st_size
    record_property(LINE, f"pack: {len(pack)} modules, {size / 1e6:.2f} MB")
    assert len(pack) > 500 and size < 6_000_000


def test_it_has_kernels_for_native_and_for_emulated_types(known):
    """Other families' in `test_random_examples_need_no_other_kernel`. Of each family, every fifth
    problem: neighbours differ in data types."""
    found, none = 0, frozenset()
    for types, lanes in itertools.product((TYPES, none), (SHUFFLES | SUBGROUP_SUMS, none)):
        left = samples.FEATURES.difference(types, lanes)
        for family in ("matmul", "block_product", "conv"):
            for node, targets in itertools.islice(samples.problems(family), 0, None, 5):
                for target in targets:
                    needed = set(all_modules(node, target.masked(left)))
                    found += len(needed)
                    missing = {spec for spec in needed if not known(spec)}
                    # With the kernels for processors whose lanes can't exchange what they load, or
                    # add up their sums, the archive would be too large.
                    assert not (missing and lanes)
                    assert {spec.template for spec in missing} <= {
                        "matmul.comp.j2", "matvec_blocks.comp.j2", "winograd_product.comp.j2",
                    }
                    assert all(any(b.load == "texel" for b in s.buffers) for s in missing)
    assert found > 1000


@pytest.mark.parametrize("mask", [
    pytest.param("", id="native"),
    pytest.param(",".join(TYPES), id="masked", marks=pytest.mark.explore),
])
@pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT)
def test_conformance_without_a_compiler(pack, mask, tmp_path, record_property, vulkan, request):
    """Vectors of some files; `test_random_examples_need_no_other_kernel` has every operator."""
    chosen = [f for f in suite.files("conformance") if any(conformance.cases(f))]
    if not request.config.option.explore:
        chosen = chance("pack").sample(chosen, 12)
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
        target = Target(profile, available=known, has_compiler=False)
        program, _ = compile_program(graph, target)
        on_cpu = [step for step in program.report.steps if step.device == "cpu"]
        assert not on_cpu, f"{profile.name}: {on_cpu}"
        assert all(map(known, program.kernels)), profile.name


@pytest.mark.parametrize("name", ["mobilenet_v2", "resnet50", "bert"])
def test_common_models_compile_nothing(name, known):
    """The fused kernels, which a compiler could make, are in the archive too."""
    graph = described(GRAPHS[name])
    for profile in map(stored_profile, ("llvmpipe", "nvidia_ampere")):
        program, _ = compile_program(graph, Target(profile))
        assert [spec for spec in program.kernels if not known(spec)] == [], profile.name
        # Not for lack of fusion.
        assert any(spec.option("epilogue") for spec in program.kernels)


@pytest.mark.parametrize("name", sorted(ALL_OPERATORS))
def test_random_examples_need_no_other_kernel(name, cpu_context, known):
    """For the stored profiles, whose plans differ, as a library without a compiler plans: all is on
    the device. Nothing is run."""
    profiles = [stored_profile(p) for p in NAMES]
    profiles.append(profiles[0].masked(TYPES))
    count = 2 if name in MANY_STEPS else 6

    @settings(
        max_examples=max(2, settings.default.max_examples // 60), deadline=None, database=None,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck), print_blob=False,
    )
    @given(st.lists(examples(name), min_size=count, max_size=count))
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
                profile, available=known, has_compiler=False, skip=("fold",)
            )
            program, _ = compile_program(graph, target)
            on_cpu = [step for step in program.report.steps if step.device == "cpu"]
            assert not on_cpu, f"{profile.name}: {on_cpu}"
            missing = [spec for spec in program.kernels if not known(spec)]
            assert not missing, f"{profile.name}: {missing}"

    check()

"""Every conformance vector passes, by the suite's own criteria."""

import os
import shutil
import subprocess
import sys
from dataclasses import replace

import pytest

import webnn_vk
from tests.conformance.wpt import conformance, suite
from tests.support import selection
from tests.support.drivers import require_vulkan
from tests.support.kompute import require_kompute
from tests.support.paths import ROOT
from webnn_vk.codegen.spirv import info
from webnn_vk.runtime.tuning import tuner
from webnn_vk.runtime.tuning.tuner import Plan

needs_suite = pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT)

#: The files that contain cases (one is empty).
FILES = [f for f in suite.files("conformance") if any(conformance.cases(f))]
#: How each maskable feature appears in a module.
CAPABILITIES = {
    "float16": {"Float16", "StorageBuffer16BitAccess", "UniformAndStorageBuffer16BitAccess"},
    "int8": {"Int8", "StorageBuffer8BitAccess", "UniformAndStorageBuffer8BitAccess"},
    "int16": {"Int16"},
    "int64": {"Int64"},
}


@pytest.fixture(scope="module")
def contexts():
    """Contexts by (device, variant), made once."""
    made = {}

    def get(device: str, variant: str):
        if (device, variant) not in made:
            settings = conformance.settings_for(device, variant)
            made[device, variant] = webnn_vk.ml.create_context(settings=settings).result()
        return made[device, variant]

    yield get
    for context in made.values():
        context.destroy()


@needs_suite
@pytest.mark.parametrize("file", FILES)
@pytest.mark.parametrize(
    ("device", "variant"),
    [
        # With all passes; "saved" checks the results of the graph before it is saved, too.
        ("cpu", "saved"),
        pytest.param("vulkan", "saved", marks=[pytest.mark.full, pytest.mark.sample(0.15)]),
        ("vulkan", "inputs"), pytest.param("vulkan", "unfolded", marks=pytest.mark.explore),
        pytest.param("vulkan", "tuned", marks=pytest.mark.explore),
    ],
)
def test_vectors(contexts, device, variant, file):
    if device == "vulkan":
        require_vulkan()
    context = contexts(device, variant)
    tally = conformance.Tally()
    for _, case in conformance.cases(file):
        conformance.run(context, tally, file, case, variant)
    assert tally.ok, "\n".join(tally.failures)
    assert tally.passed


@needs_suite
@pytest.mark.parametrize("file", ["matmul", "conv2d"])
def test_vectors_by_other_schedules(vulkan, monkeypatch, tmp_path, file):
    """Every schedule that the tuner accepts computes correctly, not only the fastest: for each
    kernel of some vectors the last of the measured schedules is used."""
    monkeypatch.setattr(tuner, "accepted", lambda usual, seconds: list(seconds)[-1])
    settings = replace(conformance.settings_for("vulkan", "tuned"), cache=tmp_path)
    tally, cases = conformance.Tally(), [case for _, case in conformance.cases(file)]
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        context._state.tuner.plan = Plan(candidates=3, rounds=1)
        for case in selection.chance("other schedules", file).sample(cases, 4):
            conformance.run(context, tally, file, case, "tuned")
        outcomes = context._state.tuner.outcomes
    assert tally.ok and tally.passed, "\n".join(tally.failures)
    assert sum(o.chosen != o.usual for o in outcomes) >= len(outcomes) / 2 > 1
    assert not any(m.rejected for o in outcomes for m in o.measured)


@pytest.mark.full
@needs_suite
@pytest.mark.device
@pytest.mark.sample(0.1)
@pytest.mark.parametrize("file", FILES)
def test_vectors_through_kompute(through_kompute, file):
    tally = conformance.Tally()
    for _, case in conformance.cases(file):
        conformance.run(through_kompute, tally, file, case, "inputs")
    assert tally.ok, "\n".join(tally.failures)
    assert tally.passed


@pytest.fixture(scope="module")
def through_kompute():
    require_kompute()
    settings = replace(conformance.settings_for("vulkan", "inputs"), driver="kompute")
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        yield context


def command(*arguments: str, **environment: str) -> tuple[int, str]:
    """Runs the conformance command in a new process: (exit status, output)."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.conformance.wpt.conformance", *arguments],
        cwd=ROOT, env={**os.environ, **environment}, capture_output=True, text=True, timeout=900,
    )
    return done.returncode, done.stdout + done.stderr


@needs_suite
@pytest.mark.full
@pytest.mark.timeout(900)
def test_with_native_types_masked(tmp_path, vulkan):
    """Modules of some vectors; the results are also compared in differential/test_operators.py."""
    status, text = command(
        "--variant", "inputs", "--file", *selection.chance("masked").sample(FILES, 16),
        WEBNN_VK_MASK="float16,int8,int16,int64", WEBNN_VK_DUMP_SPIRV=str(tmp_path),
    )
    assert status == 0, text[-4000:]
    modules = list(tmp_path.glob("*.spv"))
    assert len(modules) > 40
    forbidden = set().union(*CAPABILITIES.values())
    for module in modules:
        assert not info(module.read_bytes()).capabilities & forbidden, module.name
        # Counted among the validated modules at the end of the run.
        shutil.copy(module, os.environ["WEBNN_VK_DUMP_SPIRV"])


@needs_suite
def test_native_types_are_used_where_the_device_has_them(tmp_path, vulkan):
    status, text = command("--file", "arg_min_max", WEBNN_VK_DUMP_SPIRV=str(tmp_path))
    assert status == 0, text[-4000:]
    used = set().union(*(info(m.read_bytes()).capabilities for m in tmp_path.glob("*.spv")))
    for feature in ("float16", "int8", "int64"):
        assert used & CAPABILITIES[feature], feature
    for module in tmp_path.glob("*.spv"):
        shutil.copy(module, os.environ["WEBNN_VK_DUMP_SPIRV"])


@needs_suite
def test_the_command_fails_when_steps_run_on_the_cpu(vulkan):
    status, text = command("--file", "relu", WEBNN_VK_FORCE_CPU="relu")
    assert status == 1
    assert "cpu_steps 0" not in text.splitlines()[-1]


@needs_suite
def test_the_comparison_can_fail(cpu_context):
    (_, case), *_ = conformance.cases("relu")
    name, resource = next(iter(case["graph"]["expectedOutputs"].items()))
    data = [x + 1 for x in resource["data"]]
    wrong = {**case["graph"], "expectedOutputs": {name: {**resource, "data": data}}}
    error, _ = conformance.run_case(cpu_context, {**case, "graph": wrong}, False)
    assert error is not None and "exceeds" in error


@needs_suite
def test_no_stale_entry_among_the_skips():
    named = {
        f"{file}: {case['name']}"
        for file, case in conformance.cases()
        if case.get("nonSpecDataType")
    }
    assert named == set(suite.skipped()["conformance"])


def test_settings_of_the_variants():
    default = conformance.settings_for("cpu", "default")
    assert conformance.settings_for("cpu", "inputs") == replace(
        default, skip_passes=conformance.ALL_PASSES
    )

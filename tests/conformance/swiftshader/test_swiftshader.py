"""A sample with every data type of every operator runs on SwiftShader and on the lavapipe of a
newer Mesa, as on this machine's lavapipe.

The newer one has Vulkan 1.4, cooperative matrices and integer dot products. SwiftShader has no
native 8-, 16- or 64-bit types, aligns bindings to 256 bytes, has subgroups of 4 invocations, and
its compiler shares no code with Mesa's.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.conformance.wpt import suite
from tests.support import judges, newer_mesa, selection, summary
from tests.support.paths import ROOT

# It is a Vulkan driver, though not the one that the other tests use.
pytestmark = pytest.mark.device
MANIFESTS = (
    Path("/usr/lib/chromium/vk_swiftshader_icd.json"),
    Path("/usr/lib64/chromium-browser/vk_swiftshader_icd.json"),
)
#: Limit in seconds of a process that hangs; about 45 are needed on an EPYC without cached kernels.
END = 900


Command = Callable[..., tuple[list[str], dict[str, str]]]


def swiftshader() -> Command:
    for path in MANIFESTS:
        if path.is_file():
            drivers = {"VK_ICD_FILENAMES": str(path), "VK_DRIVER_FILES": str(path)}
            return lambda folder, *arguments: (
                [sys.executable, *arguments], {**os.environ, **drivers}
            )
    judges.missing("SwiftShader is not installed (Debian: apt install chromium)")


def newer_lavapipe() -> Command:
    if reason := newer_mesa.missing():
        judges.skip(reason)
    return newer_mesa.command


#: What the name of each driver's device contains.
DRIVERS = {"SwiftShader": swiftshader, "LLVM 19": newer_lavapipe}


@pytest.fixture(scope="module", params=[
    "SwiftShader", pytest.param("LLVM 19", marks=pytest.mark.explore),
])
def driver(request: pytest.FixtureRequest) -> tuple[str, Command]:
    return request.param, DRIVERS[request.param]()


def run_child(
    driver: tuple[str, Command], folder: Path, *arguments: str, module: str = "child",
    **environment: str,
) -> dict:
    result = folder / "result.json"
    words, variables = driver[1](
        folder, "-m", f"tests.conformance.swiftshader.{module}", str(result), *arguments
    )
    done = subprocess.run(
        words, cwd=ROOT, env={**variables, **environment}, capture_output=True, text=True,
        timeout=END,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]
    return json.loads(result.read_text(encoding="utf-8"))


@pytest.mark.timeout(END + 60)
def test_every_data_type_of_every_operator(driver, tmp_path, record_property):
    seed = selection.seed()
    found = run_child(driver, tmp_path, "--seed", seed)
    record_property(
        summary.LINE,
        f"{found['device']}: {found['vectors']['passed']} vectors, {found['chance']['passed']} by "
        f"chance ({selection.SEED}={seed}), {found['examples']} examples; {found['operators']} "
        f"operators, {found['types_by_vectors']} + {found['types_by_examples']} of "
        f"{found['types']} data types, {found['cpu_steps']} steps on the CPU; "
        f"{found['seconds']:.0f} s ({found['cpu_seconds']:.0f} s of CPU)",
    )
    assert driver[0] in found["device"]
    assert not found["failures"], f"seed {seed}:\n" + "\n".join(found["failures"])
    assert found["cpu_steps"] == 0
    assert found["validating"] == (os.environ["WEBNN_VK_VALIDATE"] == "1")
    assert not found["messages"], "\n".join(found["messages"])
    assert not found["types_not_covered"]
    assert found["uses_not_covered"] == 0
    assert found["vectors"]["passed"] >= (300 if suite.PRESENT else 0)


def test_the_suite_is_there(driver):
    if not suite.PRESENT:
        judges.skip(
            "the web-platform-tests are not beside this checkout (../shared/wpt): "
            f"{driver[0]} ran random examples only"
        )


def test_a_step_on_the_cpu_is_seen(driver, tmp_path):
    if not suite.PRESENT:
        judges.skip("no vectors to force onto the CPU")
    found = run_child(driver, tmp_path, "--operator", "softsign", WEBNN_VK_FORCE_CPU="softsign")
    assert found["cpu_steps"] >= found["vectors"]["failed"] > 0
    assert found["vectors"]["passed"] == 0 and found["failures"]

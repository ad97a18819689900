"""Drivers that fail, crash or hang when they are queried, alone and beside a working one, each in a
new process. tests/support/fake_icd.c makes the drivers from lavapipe."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.support.fake_icd import FakeDrivers
from tests.support.paths import ROOT

SOFTWARE, DISCRETE = 4, 2


@pytest.fixture(scope="module")
def drivers(tmp_path_factory: pytest.TempPathFactory, physical: object) -> FakeDrivers:
    return FakeDrivers(tmp_path_factory.mktemp("drivers"))


START = """
import json, sys, warnings
import numpy as np
import webnn_vk as webnn
from webnn_vk.driver.vulkan import driver_search

def context(device=None):
    settings = webnn.Settings(device=device)
    return webnn.ml.create_context(settings=settings).result(60)

def computes(context):
    builder = webnn.MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [3]})
    graph = builder.build({"y": builder.neg(x)}).result(60)
    result = context.compute(graph, {"x": np.arange(3, dtype=np.float32)})["y"]
    assert result.tolist() == [0, -1, -2], result
    return context.device_info.name
"""


class Process:
    """Runs code with some drivers and a new cache."""

    def __init__(self, folder: Path, drivers: FakeDrivers) -> None:
        self.folder, self.drivers = folder, drivers

    def __call__(self, code: str, *manifests: Path, status: int = 0, **variables: str) -> list[str]:
        environment = {**os.environ, "WEBNN_VK_CACHE": str(self.folder), "WEBNN_VK_VALIDATE": "0",
                       **self.drivers.variables(*manifests), **variables}
        done = subprocess.run([sys.executable, "-c", START + code], text=True, timeout=120,
                              capture_output=True, env=environment, cwd=ROOT)
        assert done.returncode == status, done.stdout + done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return [*done.stdout.splitlines(),
                *(line for line in done.stderr.splitlines() if "RuntimeWarning" in line)]


@pytest.fixture
def process(tmp_path: Path, drivers: FakeDrivers) -> Process:
    return Process(tmp_path, drivers)


LIST = """
for device in webnn.devices():
    print(device.name, "|", device.unusable or "usable")
"""
#: The message about each, alone.
ALONE = [
    ("refuses", {"vkCreateInstance": -3}, "it doesn't come up (vkCreateInstance)"),
    ("no_gpu", {"vkEnumeratePhysicalDevices": -3},
     "vkEnumeratePhysicalDevices fails: VK_ERROR_INITIALIZATION_FAILED"),
    ("aborts", {"vkCreateInstance": "abort"}, "it crashes (SIGABRT) in vkCreateInstance"),
    ("crashes", {"vkEnumeratePhysicalDevices": "crash"},
     "it crashes (SIGSEGV) in vkEnumeratePhysicalDevices"),
    ("crashes_later", {"vkCreateDevice": "crash"}, "it crashes (SIGSEGV) in vkCreateDevice"),
    ("no_heaps", {"no_heaps": 1, "type": DISCRETE}, "the device reports no memory heaps"),
]


@pytest.mark.parametrize(("title", "said", "reason"), ALONE, ids=[row[0] for row in ALONE])
def test_a_driver_that_fails_is_listed_and_the_cpu_taken(
    process: Process, drivers: FakeDrivers, title: str, said: dict, reason: str
) -> None:
    manifest = drivers.make(title, **said)
    broken, cpu, used, refused, *warnings = process(LIST + """
print(computes(context()))
context()
try:
    context("vulkan")
except webnn.NotSupportedError as error:
    print(error)
""", manifest)
    name, unusable = broken.split(" | ")
    assert name in (f"driver {manifest.name}", title)
    assert unusable.startswith(reason)
    assert cpu.startswith("CPU") and cpu.endswith("usable") and used.startswith("CPU")
    assert refused.startswith("Settings(device='vulkan'): no usable Vulkan device")
    assert reason in refused
    assert len(warnings) == 1 and reason in warnings[0] and "the CPU device is used" in warnings[0]


BESIDE = [row for row in ALONE if row[0] != "refuses"] + [
    ("can_t_be_asked", {"vkEnumerateDeviceExtensionProperties": -1, "type": DISCRETE},
     "it can't be asked what it offers: enumerating VkExtensionProperties: "
     "VK_ERROR_OUT_OF_HOST_MEMORY"),
]


@pytest.mark.parametrize(("title", "said", "reason"), BESIDE, ids=[row[0] for row in BESIDE])
def test_beside_one_that_works(
    process: Process, drivers: FakeDrivers, title: str, said: dict, reason: str
) -> None:
    manifest = drivers.make(title, **said)
    *listed, index, used, refused = process(LIST + """
broken = next(device for device in webnn.devices() if device.unusable)
print(broken.index)
print(computes(context("vulkan")))
try:
    context(broken.index)
except webnn.NotSupportedError as error:
    print(error)
""", manifest, drivers.real)
    names = dict(line.split(" | ") for line in listed)
    assert len(names) == 3
    assert names[next(name for name in names if title in name)].startswith(reason)
    assert "llvmpipe" in used and names[used] == "usable"
    assert f"Settings(device={index}): " in refused and reason in refused


def test_a_device_that_can_t_be_opened_is_passed_over(
    process: Process, drivers: FakeDrivers
) -> None:
    """The next best device is opened, finally the CPU device, and one line reports it."""
    first = drivers.make("first", type=DISCRETE, vkCreateDevice=-3)
    second = drivers.make("second", type=1)
    reason = "creating VkDevice: VK_ERROR_INITIALIZATION_FAILED"
    code = """
print(computes(context()))
context()
for name in ("first", "0"):
    try:
        context(name)
    except webnn.NotSupportedError as error:
        print(error)
"""
    used, *refused, last, warning = process(code + LIST, first, second)[:9]
    assert used == "second"
    assert refused[:2] == [f"Settings(device='first'): first can't be used: {reason}",
                           f"Settings(device=0): first can't be used: {reason}"]
    assert refused[2:] == [f"first | {reason}", "second | usable"]
    assert last.startswith("CPU")
    assert f"webnn_vk: first is passed over: {reason}" in warning
    only = process(code, first)
    assert only[0].startswith("CPU")
    assert len(only) == 4 and f"no GPU (first: {reason}); the CPU device is used" in only[3]


def test_one_that_hangs_is_asked_once(process: Process, drivers: FakeDrivers) -> None:
    manifest = drivers.make("hangs", vkEnumeratePhysicalDevices="hang")
    patience, first = 1, [""]
    # Until the working one has answered in time, which may take long on a busy machine.
    while "llvmpipe" not in first[0]:
        for known in process.folder.glob("drivers/*"):
            known.unlink()
        patience *= 2
        code = f"driver_search.PATIENCE = {patience}\n" + LIST
        first = process(code, manifest, drivers.real)
    assert f"hangs: vkEnumeratePhysicalDevices took longer than {patience} s" in first[1]
    # From then on it is known: no process waits for it.
    code = "driver_search.PATIENCE = 100\n" + LIST + "print(computes(context('vulkan')))"
    again = process(code, manifest, drivers.real)
    assert again[:2] == first[:2] and again[3] == first[0].split(" | ")[0]


def test_a_driver_that_was_mended_is_taken_at_once(process: Process, drivers: FakeDrivers) -> None:
    manifest = drivers.make("mended", vkCreateInstance="crash")
    assert "it crashes" in process(LIST, manifest)[0]
    time.sleep(0.02)
    drivers.make("mended")
    assert process(LIST, manifest)[0] == "mended | usable"


def test_drivers_that_are_known_are_not_asked_in_a_process_of_their_own(
    process: Process, drivers: FakeDrivers
) -> None:
    count = """
import subprocess
started = []
class Counted(subprocess.Popen):
    def __init__(self, command, *rest, **options):
        started.append("driver_probe" in str(command))
        super().__init__(command, *rest, **options)
subprocess.Popen = Counted
webnn.devices()
print(sum(started))
"""
    assert process(count, drivers.real) == ["1"]
    assert process(count, drivers.real) == ["0"]
    assert not list(process.folder.rglob("*.asking"))
    # Others have others.
    assert process(count, drivers.make("another"), drivers.real) == ["1"]
    # Without a cache nothing is known.
    assert process(count, drivers.real, WEBNN_VK_CACHE="off") == ["1"]


def test_the_compiler_is_imported_while_unknown_drivers_are_probed(
    process: Process, drivers: FakeDrivers
) -> None:
    code = "context('vulkan'); print('webnn_vk.compiler.ops' in sys.modules)"
    assert process(code, drivers.real) == ["True"]
    assert process(code, drivers.real) == ["False"]


def test_work_is_done_until_the_probe_ends(process: Process, drivers: FakeDrivers) -> None:
    code = """
import itertools, time
from webnn_vk.driver.vulkan.driver_search import Drivers
done = []
def work():
    done.append(None)
    time.sleep(0.001)
verdict = Drivers(meanwhile=itertools.repeat(work)).verdict
count = len(done)
again = Drivers(meanwhile=[work]).verdict
print(verdict.broken, count > 0, again == verdict, len(done) - count)
"""
    assert process(code, drivers.real) == ["{} True True 0"]


def test_a_process_that_died_among_the_drivers_has_them_asked_again(
    process: Process, drivers: FakeDrivers
) -> None:
    """A driver known to work may break later: the process that it kills warns the others."""
    manifest = drivers.make("later")
    assert process(LIST, manifest)[0] == "later | usable"
    (known,) = process.folder.glob("drivers/*.json")
    about = Path(f"{drivers.folder}/libfake_later.so.conf")
    about.write_text(f"{about.read_text()}vkEnumeratePhysicalDevices crash\n")
    process(LIST, manifest, status=-11)
    assert len(list(process.folder.glob("drivers/*.asking"))) == 1
    assert "it crashes (SIGSEGV)" in process(LIST, manifest)[0]
    assert list(process.folder.glob("drivers/*.json")) == [known]
    assert not list(process.folder.glob("drivers/*.asking"))


def test_the_doctor_probes_again(process: Process, drivers: FakeDrivers) -> None:
    manifest = drivers.make("patient", vkEnumeratePhysicalDevices="abort")
    assert "it crashes" in process(LIST, manifest)[0]
    about = Path(f"{drivers.folder}/libfake_patient.so.conf")
    well = about.read_text().replace("vkEnumeratePhysicalDevices abort\n", "")
    about.write_text(well)
    assert "it crashes" in process(LIST, manifest)[0], "remembered"
    doctor = "from webnn_vk.tools.cli import main\nsys.argv = ['webnn-vk', 'doctor']\nmain()"
    assert any("patient (cpu" in line and "unusable" not in line
               for line in process(doctor, manifest))
    assert process(LIST, manifest)[0] == "patient | usable"
    about.write_text(f"{well}vkCreateDevice -4\n")
    lines = process(doctor.replace("main()", "print(main())"), manifest)
    assert "Problems    patient can't be used: creating VkDevice: VK_ERROR_DEVICE_LOST" in lines
    assert lines[-1] == "1"


def test_drivers_that_fail_after_a_good_probe_are_probed_again(
    process: Process, drivers: FakeDrivers
) -> None:
    manifest = drivers.make("doubtful")
    assert process(LIST, manifest)[0] == "doubtful | usable"
    about = Path(f"{drivers.folder}/libfake_doubtful.so.conf")
    about.write_text(f"{about.read_text()}vkEnumeratePhysicalDevices -3\n")
    assert "CPU" in process(LIST, manifest)[0], "what was remembered was wrong"
    assert "fails: VK_ERROR_INITIALIZATION_FAILED" in process(LIST, manifest)[0]


def test_the_devices_are_listed_where_the_layer_is_missing(process: Process) -> None:
    """A warning, not an error."""
    lines = process("""
from webnn_vk.driver.vulkan import quirks
quirks.LAYER = "VK_LAYER_no_such"
print(len(webnn.devices()))
""", process.drivers.real, WEBNN_VK_VALIDATE="1")
    assert lines[0] == "1" and "the Vulkan devices can't be listed: validation was" in lines[1]


@pytest.mark.parametrize("garbage", ["{", "[]"])
def test_a_damaged_memory_is_none(
    process: Process, drivers: FakeDrivers, garbage: str
) -> None:
    process(LIST, drivers.real)
    (known,) = process.folder.glob("drivers/*.json")
    about = known.read_text()
    known.write_text(garbage)
    assert "usable" in process(LIST, drivers.real)[0]
    assert known.read_text() == about


def test_a_loader_without_the_extension_for_portable_drivers(
    process: Process, drivers: FakeDrivers
) -> None:
    """The first attempt names it, the second doesn't."""
    lines = process("""
from tests.support.vulkan_faults import FaultyLibrary
from webnn_vk.driver.vulkan import binding
binding.lib = library = FaultyLibrary(binding)
library.arm("vkCreateInstance", "", "EXTENSION_NOT_PRESENT")
print(computes(context("vulkan")), library.injected)
""", drivers.real)
    assert len(lines) == 1 and "llvmpipe" in lines[0] and lines[0].endswith("True")


def test_each_call_before_there_is_a_device_fails_with_each_error(
    process: Process, drivers: FakeDrivers
) -> None:
    """The CPU device is opened, Vulkan refused with the code, the devices are listed; and the next
    attempt, without the error, works."""
    lines = process("""
from tests.support.vulkan_faults import INSTANCE_ERRORS, FaultyLibrary, errors_of
from webnn_vk.driver.vulkan import binding, instance
binding.lib = library = FaultyLibrary(binding)
warnings.simplefilter("ignore")
doubts = []
driver_search.Drivers.doubt = lambda self: doubts.append(self)  # each probe takes long

def refusal(call, error):
    library.arm(call, "", error)
    try:
        context("vulkan")
    except webnn.NotSupportedError as refused:
        return str(refused)

for call in INSTANCE_ERRORS:
    for error in errors_of(call):
        instance._instance = None  # as in a process that begins
        said = refusal(call, error)
        if error == "INCOMPATIBLE_DRIVER":  # the loader's word for a driver that doesn't come up
            assert "it doesn't come up" in said, said
        else:
            assert f"VK_ERROR_{error}" in said and library.injected, (call, error, said)
        instance._instance = None
        library.arm(call, "", error)
        assert computes(context()).startswith("CPU"), (call, error)
        instance._instance = None
        library.arm(call, "", error)
        listed = webnn.devices()
        assert listed[-1].name.startswith("CPU"), listed
        assert all(device.unusable for device in listed[:-1]), listed
        assert len(webnn.devices()) == 2 and not webnn.devices()[0].unusable
assert doubts
print(computes(context("vulkan")))
""", drivers.real)
    assert len(lines) == 1 and "llvmpipe" in lines[0]

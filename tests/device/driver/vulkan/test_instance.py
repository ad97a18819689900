"""Instance, validation layer, forks, missing libraries: each in a new process."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.conftest import LAYER_INSTALLED
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

needs_layer = pytest.mark.skipif(not LAYER_INSTALLED, reason="no validation layer installed")

OPEN = """
from webnn_vk.driver.vulkan import binding as vk, instance
from webnn_vk.driver.vulkan.driver import open_driver
from webnn_vk.driver.vulkan.devices import list_devices
from webnn_vk.driver import *
from webnn_vk.driver.vulkan.errors import *
device = list_devices()[0]
"""


def python(code: str, environment: dict[str, str] | None = None) -> str:
    """Runs code in a new process and returns what it prints."""
    result = subprocess.run([sys.executable, "-c", textwrap.dedent(code)], text=True, timeout=120,
                            capture_output=True, env=os.environ | (environment or {}))
    assert result.returncode == 0, result.stderr
    assert "Traceback" not in result.stderr
    return result.stdout


VALIDATE = {"WEBNN_VK_VALIDATE": "1"}
PLANT = """
driver = open_driver(device)
info = vk.struct("VkBufferCreateInfo", "BUFFER_CREATE_INFO", size=0,
                 usage=vk.const("VK_BUFFER_USAGE_STORAGE_BUFFER_BIT"))
vk.lib.vkCreateBuffer(driver.handle, info, vk.NULL, vk.new("VkBuffer *"))
"""


@needs_layer
def test_planted_error_is_raised_at_the_next_call(physical: PhysicalDevice) -> None:
    printed = python(OPEN + PLANT + """
try:
    driver.allocate(1)
except ValidationError as error:
    print(len(error.messages), "VUID-VkBufferCreateInfo-size-00912" in str(error))
driver.allocate(1)  # raised once only
print(instance.drain_validation_messages(), len(instance.reported))
""", VALIDATE)
    assert printed == "1 True\n[] 1\n"


@needs_layer
def test_what_a_driver_says_of_its_own_results_is_no_mistake_of_ours(
    physical: PhysicalDevice,
) -> None:
    """Mesa reports every error that it returns, out of memory for example, through the layer."""
    printed = python(OPEN + """
driver = open_driver(device)
handle = instance.instance().handle
submit = vk.instance_function(handle, "vkSubmitDebugUtilsMessageEXT")
for kind, name in (("GENERAL", "../src/vulkan/vk_queue.c:531"), ("GENERAL", "UNASSIGNED-mine"),
                   ("VALIDATION", "SYNC-HAZARD-mine")):
    name, text = vk.new("char[]", name.encode()), vk.new("char[]", (kind + " said").encode())
    data = vk.struct("VkDebugUtilsMessengerCallbackDataEXT",
                     "DEBUG_UTILS_MESSENGER_CALLBACK_DATA_EXT",
                     pMessageIdName=name, pMessage=text)
    submit(handle, vk.const("VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT"),
           vk.const(f"VK_DEBUG_UTILS_MESSAGE_TYPE_{kind}_BIT_EXT"), data)
    print(instance.drain_validation_messages())
""", VALIDATE)
    assert printed == "[]\n['GENERAL said']\n['VALIDATION said']\n"


@needs_layer
def test_planted_error_can_be_drained(physical: PhysicalDevice) -> None:
    printed = python(OPEN + PLANT + """
seen = instance.reported
print(seen == instance.drain_validation_messages(), len(seen), "size-00912" in seen[0])
driver.allocate(1)
print(instance.drain_validation_messages())
""", VALIDATE)
    assert printed == "True 1 True\n[]\n"


@needs_layer
def test_copy_beyond_a_buffer_is_reported(physical: PhysicalDevice) -> None:
    """The allocation's own check is bypassed: the layer detects the error instead."""
    printed = python(OPEN + """
driver = open_driver(device)
data = driver.allocate(256)
data.size = 1 << 40
driver.record([CopyCommand(data, 0, data, 1 << 30, 256)])
print(any("vkCmdCopyBuffer" in text for text in instance.drain_validation_messages()))
""", VALIDATE)
    assert printed == "True\n"


@needs_layer
def test_missing_barrier_is_reported(physical: PhysicalDevice) -> None:
    for barrier, expected in (("", "True\n"), ("BarrierCommand(),", "False\n")):
        printed = python(OPEN + f"""
driver = open_driver(device)
data = driver.allocate(256)
driver.record([FillCommand(data, 0, 256, 1), {barrier} FillCommand(data, 0, 256, 2)])
print(any("SYNC-HAZARD-WRITE" in text for text in instance.drain_validation_messages()))
""", VALIDATE)
        assert printed == expected


@needs_layer
def test_hazard_between_two_submits_is_reported(physical: PhysicalDevice) -> None:
    """With and without the barriers at the start of every submit."""
    none = "from webnn_vk.driver.vulkan import submission; submission.put_barrier = lambda *_: None"
    for patch, expected in ((none, "True\n"), ("", "False\n")):
        printed = python(OPEN + f"""
driver = open_driver(device)
data = driver.allocate(256)
{patch}
for value in (1, 2):
    driver.submit([driver.record([FillCommand(data, 0, 256, value)])])
print(any("SYNC-HAZARD-WRITE-AFTER-WRITE" in text and "vkQueueSubmit" in text
          for text in instance.drain_validation_messages()))
""", VALIDATE)
        assert printed == expected


@needs_layer
def test_hazard_between_two_recordings_is_reported(physical: PhysicalDevice) -> None:
    """With and without the barrier at the start of every recording."""
    for patch, expected in (("driver._recorder._barrier = lambda *_: None", "True\n"),
                            ("", "False\n")):
        printed = python(OPEN + f"""
driver = open_driver(device)
data = driver.allocate(256)
{patch}
driver.submit([driver.record([FillCommand(data, 0, 256, value)]) for value in (1, 2)])
print(any("SYNC-HAZARD-WRITE-AFTER-WRITE" in text
          for text in instance.drain_validation_messages()))
""", VALIDATE)
        assert printed == expected


def test_without_the_layer_nothing_is_collected(physical: PhysicalDevice) -> None:
    printed = python(OPEN + """
print(instance.instance().validating, len(instance.reported))
try:
    instance.instance(validate=True)
except LayerMissing as error:
    print(error)
""", {"WEBNN_VK_VALIDATE": "0"})
    assert printed.startswith("False 0\nvalidation was asked for after")


def test_missing_layer(physical: PhysicalDevice) -> None:
    printed = python("""
from webnn_vk.driver.vulkan import instance, quirks
from webnn_vk.driver.vulkan.errors import LayerMissing
quirks.LAYER = "VK_LAYER_no_such"
try:
    instance.instance(validate=True)
except LayerMissing as error:
    print(error)
""")
    assert "the layer VK_LAYER_no_such is not installed" in printed


def test_no_driver() -> None:
    printed = python("""
from webnn_vk.driver.vulkan.devices import list_devices
from webnn_vk.driver.vulkan.errors import VulkanUnavailable
try:
    list_devices()
except VulkanUnavailable as error:
    print(error)
""", {"VK_ICD_FILENAMES": "/nonexistent.json", "VK_DRIVER_FILES": "/nonexistent.json",
      "WEBNN_VK_VALIDATE": "0"})
    assert printed.startswith("the Vulkan loader found no driver")


@pytest.mark.parametrize(("patch", "message"), [
    ("binding_types = importlib.util.find_spec; "
     "importlib.util.find_spec = lambda name: None if name == 'vulkan' else binding_types(name)",
     "the Python package 'vulkan' is not installed (pip install vulkan)"),
    ("sys.platform = 'darwin'", "the Vulkan loader library (libvulkan.dylib) was not found"),
])
def test_missing_library(patch: str, message: str) -> None:
    printed = python(f"""
import importlib.util, sys
from webnn_vk.driver.vulkan.devices import list_devices
from webnn_vk.driver.vulkan.errors import VulkanUnavailable
{patch}
for _ in range(2):
    try:
        list_devices()
    except VulkanUnavailable as error:
        print(error)
""")
    lines = printed.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(message) for line in lines)


def test_the_python_wrapper_is_not_loaded(physical: PhysicalDevice) -> None:
    assert python(OPEN + "import sys; print('vulkan' in sys.modules)") == "False\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_is_refused(physical: PhysicalDevice) -> None:
    printed = python(OPEN + """
import os, sys
driver = open_driver(device)
data = driver.allocate(1 << 20)
recording = driver.record([FillCommand(data, 0, 256)])
driver.wait(driver.submit([recording]))
child = os.fork()
if not child:
    for call in (lambda: driver.allocate(1), lambda: driver.submit([recording]), driver.completed,
                 lambda: open_driver(device), list_devices):
        try:
            call()
            print("no error")
        except ForkedProcess as error:
            assert "forked" in str(error)
    del data, recording
    driver.close()
    print("child ends", flush=True)
    sys.exit(0)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
print(driver.wait(driver.submit([recording])), flush=True)
""")
    assert printed == "child ends\n0\nTrue\n"


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_fork_before_the_first_use(physical: PhysicalDevice) -> None:
    printed = python("""
import os
from webnn_vk.driver.vulkan import instance
child = os.fork()
if not child:
    from webnn_vk.driver.vulkan.devices import list_devices
    print(len(list_devices()) > 0, flush=True)
    os._exit(0)
os.waitpid(child, 0)
""")
    assert printed == "True\n"


def test_exit_with_work_in_flight(physical: PhysicalDevice) -> None:
    assert python(OPEN + """
driver = open_driver(device)
gate = driver.sharing.semaphore()
data = driver.allocate(1 << 20)
driver.submit([driver.record([FillCommand(data, 0, 1 << 20)])], wait=[(gate, 1)])
print("end")
""") == "end\n"


def test_ctrl_c_during_a_wait(physical: PhysicalDevice) -> None:
    assert python(OPEN + """
import os, signal, threading
driver = open_driver(device)
gate = driver.sharing.semaphore()
value = driver.submit([], wait=[(gate, 1)])
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
try:
    driver.wait(value)
except KeyboardInterrupt:
    print("interrupted")
gate.signal(1)
print(driver.wait(value, 60))
""") == "interrupted\nTrue\n"

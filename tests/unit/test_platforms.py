"""Only sharing needs Linux: everything else is imported, and a graph computed, in a process that
simulates another system and lacks what only Linux and POSIX have.

This shows that our code doesn't need them, not that it runs on those systems.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.support.drivers import require_vulkan

PRETEND = """
import sys
# Python's own modules and others' have looked at the system already; ours are imported afterwards.
import asyncio, concurrent.futures, ctypes.util, difflib, importlib.metadata, inspect, json, logging
import mmap, multiprocessing, pkgutil, platform, shutil, subprocess, tempfile, threading
import numpy, numpy.testing, jinja2, jinja2.meta, platformdirs, cffi
import rich.progress, rich.table, typer
import os
import webnn_vk
if sys.argv[2] == "vulkan":
    # The library's name is the one thing that has to be Linux's.
    import webnn_vk.driver.vulkan.binding

LINUX_MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "syslog", "crypt")
for name in LINUX_MODULES:
    sys.modules[name] = None  # an import raises
LINUX_FUNCTIONS = (
    "fork", "forkpty", "register_at_fork", "geteuid", "getuid", "getgid", "sched_getaffinity",
    "sched_setaffinity", "memfd_create", "eventfd", "pidfd_open", "posix_fallocate",
    "posix_fadvise", "pread", "preadv", "pwrite", "sysconf", "mkfifo", "getpgid", "killpg",
    "statvfs", "splice",
    "copy_file_range", "sendfile", "getloadavg", "uname",
)
for name in LINUX_FUNCTIONS:
    if hasattr(os, name):
        delattr(os, name)

def deny(event, arguments):
    if event == "open" and str(arguments[0]).startswith(("/proc", "/sys", "/dev/shm")):
        raise AssertionError(f"{arguments[0]} was opened")

sys.addaudithook(deny)
sys.platform = sys.argv[1]

imported, unavailable = 0, []
from webnn_vk.driver import DriverUnavailable
for module in pkgutil.walk_packages(webnn_vk.__path__, "webnn_vk."):
    if module.name == "webnn_vk.__main__" or module.name.endswith("codegen.__main__"):
        continue
    if module.name == "webnn_vk.distributed.serve":  # Ray looks at the system when it is imported
        continue
    try:
        __import__(module.name)
        imported += 1
    except DriverUnavailable as error:
        unavailable.append(str(error))

context = webnn_vk.ml.create_context(settings=webnn_vk.Settings(device=sys.argv[2])).result()
builder = webnn_vk.MLGraphBuilder(context)
x = builder.input("x", {"data_type": "float32", "shape": [2, 3]})
w = builder.constant(numpy.eye(3, dtype=numpy.float32))
graph = builder.build({"y": builder.softmax(builder.relu(builder.matmul(x, w)), 1)}).result()
y = context.compute(graph, {"x": numpy.full((2, 3), 7, numpy.float32)})["y"]
tensor = context.create_tensor({"data_type": "int32", "shape": [2], "readable": True}).result()
zeros = context.read_tensor(tensor).result()
context.destroy()
steps = [step.device for step in graph.report().steps]
print(json.dumps([imported, unavailable, y.tolist(), zeros.tolist(), steps, sys.platform]))
"""


def pretend(system, device, folder):
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", PRETEND, system, device],
        capture_output=True,
        text=True,
        env={**os.environ, "WEBNN_VK_CACHE": str(folder), "WEBNN_VK_DEVICE": ""},
    )
    assert done.returncode == 0, done.stderr
    imported, unavailable, y, zeros, steps, platform = json.loads(done.stdout)
    assert platform == system and zeros == [0, 0]
    assert sum(y, []) == pytest.approx([1 / 3] * 6, abs=1e-6)
    assert imported > 100
    return unavailable, steps


@pytest.mark.parametrize(
    ("system", "library", "hint"),
    [
        ("win32", "vulkan-1.dll", "it comes with the GPU's driver"),
        ("darwin", "libvulkan.dylib", "brew install vulkan-loader molten-vk"),
    ],
)
def test_the_cpu_device_needs_no_linux(system, library, hint, tmp_path):
    unavailable, steps = pretend(system, "cpu", tmp_path)
    assert set(steps) == {"cpu"}
    # The binding looked for that system's library, which isn't here; the message says what to do
    # there.
    assert unavailable and all(library in text and hint in text for text in unavailable)


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_a_vulkan_device_needs_no_linux(system, tmp_path, vulkan):
    require_vulkan()
    unavailable, steps = pretend(system, "vulkan", tmp_path)
    assert unavailable == [] and set(steps) == {"vulkan"}

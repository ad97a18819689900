"""Interrupts at random moments, caught or not. (At chosen places: test_places.py.)"""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

from tests.support import selection
from tests.support.paths import ROOT

pytestmark = [pytest.mark.device, pytest.mark.explore]


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_interrupts_that_are_caught(device, request):
    """In the end the context computes, and memory is at its earlier level."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    wanted = 3000
    command = [sys.executable, "-m", "tests.system.interrupts.random_signals", device,
               str(wanted), str(selection.chance("interrupts", device).randrange(2**31))]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.startswith(f"{wanted} interrupts on {device}")
    assert "Traceback" not in done.stderr, done.stderr[-3000:]


_LOOP = """
import signal, sys, time
from tests.system.interrupts.world import World
from webnn_vk.runtime.direct import DirectWork
signal.signal(signal.SIGINT, signal.default_int_handler)
world = World(sys.argv[1])
device, seconds = world.context._state.device, float(sys.argv[2])
execute = device.execute
def slow(works):
    time.sleep(seconds)
    return execute(works)
device.execute = slow
DirectWork.open = lambda self: None  # it would not be slow
print("ready", flush=True)
calls = [world.calls[name] for name in ("write", "dispatch", "result", "compute", "create",
                                        "callback", "build", "to_numpy")]
while True:
    for call in calls:
        call()
"""


def interrupted(device, seconds, wait):
    """Seconds from an uncaught Ctrl-C to the end of a process whose submits take ``seconds``, and
    the process's output."""
    child = subprocess.Popen([sys.executable, "-c", _LOOP, device, str(seconds)], cwd=ROOT,
                             stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert child.stdout.readline() == "ready\n", child.stderr.read()
        time.sleep(wait)
        child.send_signal(signal.SIGINT)
        start = time.monotonic()
        _, errors = child.communicate(timeout=200)
        return time.monotonic() - start, child.returncode, errors
    finally:
        child.kill()
        child.wait()


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_an_uncaught_interrupt_ends_the_process(device, request):
    """The process ends within two seconds after the end of the running submit."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    waits = selection.chance("waits", device)
    for number in range(150):
        submit = 0.0 if number % 2 else 1.0
        took, code, errors = interrupted(device, submit, waits.uniform(0, 0.3))
        assert code == -signal.SIGINT, errors
        assert errors.rstrip().endswith("KeyboardInterrupt"), errors
        assert took < submit + 2, (number, took)


_DESTROYING = """
import signal, sys, time
from tests.system.interrupts.world import World
from webnn_vk import InvalidStateError
from webnn_vk.runtime.direct import DirectWork
world = World(sys.argv[1])
device = world.context._state.device
execute = device.execute
def slow(works):
    time.sleep(0.02)
    return execute(works)
device.execute = slow
DirectWork.open = lambda self: None  # it would not be slow
signal.signal(signal.SIGALRM, lambda number, frame: world.context.destroy())
signal.setitimer(signal.ITIMER_REAL, float(sys.argv[2]))
try:
    while True:
        world.calls["compute"]()
except InvalidStateError as error:
    world.check_lost()
    print("ended:", error)
"""


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_handler_destroys_the_context_while_compute_waits(device, request):
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    for number in range(20):
        done = subprocess.run([sys.executable, "-c", _DESTROYING, device, str(0.1 + number / 50)],
                              cwd=ROOT, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0 and done.stdout.startswith("ended: "), done.stderr

"""A signal at every place of the hot methods where CPython delivers one."""

from __future__ import annotations

import signal
import subprocess
import sys

import numpy as np
import pytest

from tests.support import selection
from tests.support.contexts import returns_to, settled_bytes
from tests.support.interrupts import Places, count, interrupt
from tests.support.paths import ROOT
from tests.system.interrupts.world import World
from webnn_vk import InvalidStateError

METHODS = ("write", "write_large", "write_waited", "dispatch", "read", "result", "read_into",
           "compute", "compute_async", "create", "destroy", "fence", "fence_done", "callback",
           "to_numpy", "asarray", "build")
#: How many places of each method are tested in an ordinary run.
SAMPLE = 12


@pytest.fixture(scope="module", params=["cpu", "vulkan"])
def world(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    world = World(request.param)
    yield world
    world.context.destroy()


def places(call, method, request):
    """All places with --explore; otherwise the first, the last and some between."""
    call()
    total = count(call)
    if request.config.option.explore or total <= SAMPLE:
        return range(total)
    chosen = selection.chance("places", method)
    return sorted({0, total - 1, *chosen.sample(range(total), SAMPLE - 2)})


@pytest.mark.sample(0.5)
@pytest.mark.device
@pytest.mark.parametrize("method", METHODS)
def test_an_interrupt_at_any_place(world, method, request):
    call = world.calls[method]
    world.check_new(0)
    before = settled_bytes(world.context)
    for at in places(call, method, request):
        signal = Places(at, interrupt)
        try:
            signal.call(call)
        except KeyboardInterrupt:
            pass
        world.check(at)
        if at % 4 == 0:
            world.check_new(at)
    del signal
    assert returns_to(world.context, before)


@pytest.mark.device
@pytest.mark.parametrize("method", METHODS)
def test_a_handler_that_calls_the_api_at_any_place(world, method, request):
    call = world.calls[method]
    seen = []

    def handle():
        tensor = world.context.create_tensor({"data_type": "float32", "shape": [4],
                                              "readable": True, "writable": True}).result(60)
        data = np.arange(4, dtype=np.float32)
        world.context.write_tensor(tensor, data)
        seen.append(world.context.read_tensor(tensor).result(60).tolist() == data.tolist())
        assert world.context.fence().wait(60)
        tensor.destroy()

    for at in places(call, method, request):
        signal = Places(at, handle)
        signal.call(call)
        assert seen == [True] * bool(signal.place), signal.place
        seen.clear()
        world.check(at)


@pytest.mark.device
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize("method", ["write", "dispatch", "result", "compute", "create", "build"])
def test_a_handler_that_destroys_the_context_at_any_place(device, method, request):
    """The call ends in time, with or without InvalidStateError, and the context gives the reason.
    """
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    world = World(device)
    total = len(places(world.calls[method], method, request))
    lost = 0
    for at in range(total if request.config.option.explore else 3):
        chance = selection.chance("destroyed", device, method, at)
        # The first place is always passed; how many there are may vary.
        place = chance.randrange(count(world.calls[method])) if at else 0
        signal = Places(place, world.context.destroy)
        try:
            signal.call(world.calls[method])
        except InvalidStateError as error:
            assert str(error), signal.place
        if signal.place:
            lost += 1
            world.check_lost()
            world = World(device)
    assert lost
    world.context.destroy()


@pytest.mark.device
def test_a_tensor_lent_amid_a_dispatch(world, request):
    """From then on only the caller changes the array: the dispatch ran before, or doesn't write to
    it."""
    held, shown, refused = [], [], 0

    def lend():
        held.append(world.y.to_numpy())
        shown.append(held[0].tolist())

    world.dispatch()
    for at in range(count(world.dispatch)):
        world.check(at)
        world.context.write_tensor(world.x, np.full(4, at + 50, np.float32))
        signal = Places(at, lend)
        try:
            signal.call(world.dispatch)
        except TypeError as error:
            assert "is held by a NumPy view" in str(error)
            refused += 1
        assert world.context.fence().wait(60)
        if held:
            assert held[0].tolist() == shown[0], signal.place
            assert shown[0] in ([at + 1] * 4, [at + 51] * 4), signal.place
            held.pop().release()
        shown.clear()
    assert refused
    world.check(0)


#: While the main thread waits for a call, its submit is running and sends this process a signal;
#: direct work does so itself before it waits.
_SIGNALLED = """
import os, signal, sys, threading, time
from tests.system.interrupts.world import World
from webnn_vk import InvalidStateError
device, call, number = sys.argv[1:]
world = World(device)
opened = world.context._state.device
execute, armed = opened.execute, []
def signalling(works):
    if armed:
        os.kill(os.getpid(), armed.pop())
        handled.wait()
    return execute(works)
opened.execute = signalling
if opened.direct is not None:
    wait = opened.direct.wait
    def waiting(value, timeout=None):
        if armed:
            os.kill(os.getpid(), armed.pop())
            while not handled.is_set():  # another thread may get the signal, some time later
                time.sleep(0.001)
        return wait(value, timeout)
    opened.direct.wait = waiting
handled = threading.Event()
def handle(*_):
    if signal.SIGUSR1 == int(number):
        world.context.destroy()
        handled.set()
    else:
        handled.set()
        raise KeyboardInterrupt
signal.signal(int(number), handle)
world.calls[call]()
armed.append(int(number))
error = None
try:
    world.calls[call]()
    world.calls["fence"]()
except InvalidStateError as raised:  # unless all of it was over before the timeline's end
    error = raised
assert handled.is_set()
world.check_lost()
print("ended:", error)
"""


def signalled(device, call, number):
    return subprocess.run(
        [sys.executable, "-c", _SIGNALLED, device, call, str(int(number))], cwd=ROOT,
        capture_output=True, text=True,
    )


@pytest.mark.device
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize("call", ["write", "dispatch", "result", "compute"])
def test_an_uncaught_interrupt_ends_the_process(device, call, request):
    """While a submit is running."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    done = signalled(device, call, signal.SIGINT)
    assert done.returncode == -signal.SIGINT, done.stderr
    assert done.stderr.rstrip().endswith("KeyboardInterrupt"), done.stderr


@pytest.mark.device
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_handler_destroys_the_context_while_compute_waits(device, request):
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    done = signalled(device, "compute", signal.SIGUSR1)
    assert done.returncode == 0 and done.stdout.startswith("ended: "), done.stderr

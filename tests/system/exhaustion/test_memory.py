"""Out of memory: at any step of the library on any thread, and by a limit of the system."""

from __future__ import annotations

import pytest

#: Functions entered by one call; in an ordinary run this many of them get MemoryError.
SAMPLE = 40

AT_ANY_STEP = '''
import gc, random
from tests.support import selection
from tests.support.contexts import settled_bytes
from tests.support.shortage import Shortage
from tests.system.interrupts.world import World

DOCUMENTED = (webnn.OperationError, webnn.UnknownError)
threading.excepthook = lambda about: None  # threads that were told so print it
import logging; logging.disable(logging.CRITICAL)

def patient(function):
    """The result of a call on a thread of its own, so that a hang is seen as one."""
    outcome = []
    def run():
        try:
            outcome.append(function())
        except BaseException as error:
            outcome.append(error)
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(60)
    assert outcome, ("it hangs", short.at, short.places)
    return outcome[0]

def attempt(world, at, times):
    """The call with want of memory at its step `at`, and whether the context was lost."""
    short.begin(at, times)
    outcome = patient(CALL(world))
    time.sleep(0.01)  # other threads get there too
    short.end()
    # What ends the context may happen on a thread that goes on: the context works, or it says why
    # it doesn't.
    then = patient(lambda: (world.check(at), world.check_new(at), "well"))
    where = (METHOD, at, short.places, outcome, then)
    ended = isinstance(then, webnn.InvalidStateError)
    if isinstance(outcome, BaseException):
        # MemoryError itself where the interpreter has none to make the call: nothing has begun.
        known = (*DOCUMENTED, MemoryError, *[webnn.InvalidStateError] * ended)
        assert isinstance(outcome, known), where
    if ended:
        reason = world.context.lost.result(60).message
        assert "MemoryError" in reason, (where, reason)
        outcome = patient(lambda: world.context.create_tensor(SHAPE).result(60))
        assert isinstance(outcome, webnn.InvalidStateError), (where, outcome)
    else:
        assert isinstance(then, tuple) and then[-1] == "well", where
    world.context.destroy()
    assert world.context._state.timeline._closed.wait(60), where
    return ended

short = Shortage()
lost = tried = 0
with short.everywhere():
    world = World(DEVICE)
    CALL(world)()
    short.begin()
    CALL(world)()
    time.sleep(0.05)
    short.end()
    world.context.destroy()
    total = short.passed
    chosen = range(total) if SAMPLE is None else sorted(
        selection.chance(METHOD, DEVICE).sample(range(total), min(SAMPLE, total)))
    for at in chosen:
        tried += 1
        lost += attempt(World(DEVICE), at, times=random.Random(at).choice((1, 1, 3)))
gc.collect()
print(METHOD, total, tried, lost)
'''


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize("method", [
    "compute", "build",
    *[pytest.param(n, marks=pytest.mark.explore) for n in ("create", "write_large", "result")],
])
def test_memory_error_at_any_step(child, request, device, method):
    """The call succeeds or rejects as documented. The context goes on, or is lost with the reason.
    Then it is destroyed, and its device is closed."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    sample = None if request.config.option.explore else SAMPLE
    head = (f"DEVICE, METHOD, SAMPLE = {device!r}, {method!r}, {sample}\n"
            "CALL = lambda world: world.calls[METHOD]\n")
    printed = child(head + AT_ANY_STEP, timeout=3600 if sample is None else 290,
                    environment={"WEBNN_VK_VALIDATE": "0"})
    print(printed)


@pytest.mark.parametrize("device", ["cpu", "vulkan"])
def test_a_limit_of_address_space(child, request, device):
    """With RLIMIT_AS: creates tensors, graphs and writes until memory is exhausted, three times.
    Each call succeeds or names what is missing. Without the tensors everything works as before."""
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    printed = child('''
import gc
MB = 1 << 20
context = ml.create_context().result(60)
graph = check(context)
LARGE = {"data_type": "float32", "shape": [32, MB // 4]}

def virtual():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * resource.getpagesize()

def large():
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [1, 2000]})
    w = builder.constant(np.ones((2000, 8000), np.float32))
    return builder.build({"y": builder.matmul(x, w)}).result(60)

refused = {}
def attempt(call):
    try:
        return call()
    except (webnn.OperationError, webnn.UnknownError, MemoryError) as error:
        name = type(error).__name__
        refused[name] = refused.get(name, 0) + 1
        return error

restore = lower(resource.RLIMIT_AS, virtual() + 400 * MB)
for _ in range(3):
    kept = []
    for _ in range(20):
        made = attempt(lambda: context.create_tensor({**LARGE, "readable": True, "writable": True})
                       .result(60))
        if isinstance(made, Exception):
            break
        kept.append(made)
    assert 1 <= len(kept) < 20, (len(kept), made)
    for tensor in kept:
        attempt(lambda: context.write_tensor(tensor, np.ones((32, MB // 4), np.float32)))
        attempt(lambda: context.read_tensor(tensor).result(60))
    attempt(large)
    attempt(lambda: check(context, graph))
    made = tensor = None
    for tensor in kept:
        tensor.destroy()
    del kept, tensor
    gc.collect()
    check(context, graph)
    check(context)
restore()
large().destroy()
check(context, graph)
print(refused)
''', environment={"WEBNN_VK_DEVICE": device, "WEBNN_VK_VALIDATE": "0",
                     # glibc maps 64 MB for each thread that it gives an arena.
                     "MALLOC_ARENA_MAX": "1"})
    print(printed)
    assert "UnknownError" in printed

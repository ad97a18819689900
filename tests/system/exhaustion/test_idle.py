"""Destroyed memory returns to the system while the context is idle, and at once when another
context runs out of memory.

Memory is counted as the process and the device asked for it. With --explore resident pages are
measured too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

#: Counts memory, and waits until it falls; only a hang is a failure, which the test's limit ends.
MEASURE = '''
import gc
MB = 1 << 20

def driver_of(context):
    return getattr(context._state.device, "driver", None)

def reserved(context):
    """What the driver has taken from the heaps, read without freeing any."""
    driver = driver_of(context)
    return sum(driver._memory._usage.bytes) if driver else 0

def counted(context):
    return host_memory.held() + reserved(context)

def resident(context):
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return sum(int(lines[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))

used = resident if RESIDENT else counted

def wait_until_free(context, start, most):
    """Until no more than `most` bytes over `start` are held; no call is made meanwhile."""
    while used(context) - start > most:
        time.sleep(0.05)

def tensor(context, megabytes):
    shape = {"data_type": "float32", "shape": [megabytes, MB // 4]}
    return context.create_tensor({**shape, "readable": True, "writable": True}).result(60)
'''
#: Counting comes before the library is imported.
COUNTING = "from tests.support import host_memory; host_memory.start()\n"
MEMORY = [pytest.param(False, id="counted"),
          pytest.param(True, id="resident", marks=pytest.mark.explore)]
DEVICES = ["cpu", "vulkan"]


@pytest.fixture
def measuring(child: Callable[..., str], environment: dict[str, str]) -> Callable[..., str]:
    """Runs code after MEASURE in a new process."""

    def run(code: str, resident: bool = False) -> str:
        return child(f"RESIDENT = {resident}{MEASURE}{code}", environment=environment,
                     first=COUNTING)

    return run


@pytest.fixture(params=DEVICES)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    return {"WEBNN_VK_DEVICE": request.param, "WEBNN_VK_VALIDATE": "0", "WEBNN_VK_DUMP_SPIRV": ""}


@pytest.mark.large
@pytest.mark.parametrize("memory", MEMORY)
@pytest.mark.parametrize("how", ["destroyed", pytest.param("dropped", marks=pytest.mark.explore)])
def test_tensors(measuring, how, memory):
    measuring(f'''
context = ml.create_context().result(60)
check(context)
start = used(context)
data = np.ones((100, MB // 4), np.float32)
tensors = [tensor(context, 100) for _ in range(4)]
for each in tensors:
    context.write_tensor(each, data)
context.fence().wait(60)
assert used(context) - start > 450 * MB
del data
for each in tensors:
    {"each.destroy()" if how == "destroyed" else "pass"}
del each, tensors
wait_until_free(context, start, 40 * MB)
check(context)
''', memory)


@pytest.mark.large
@pytest.mark.parametrize("memory", MEMORY)
def test_a_graph_and_its_weights(measuring, memory):
    measuring('''
context = ml.create_context().result(60)
check(context)
start = used(context)

def large():
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [1, 5000]})
    w = builder.constant(np.ones((5000, 10000), np.float32))
    y = builder.matmul(builder.matmul(x, w), builder.constant(np.ones((10000, 5000), np.float32)))
    return builder.build({"y": y}).result(120)

graph = large()
y = context.compute(graph, {"x": np.ones((1, 5000), np.float32)})["y"]
assert (y == 5e7).all()
assert used(context) - start > 350 * MB
graph.destroy()
wait_until_free(context, start, 60 * MB)
check(context)
''', memory)


@pytest.mark.large
@pytest.mark.parametrize("memory", MEMORY)
def test_what_was_staged(measuring, memory):
    """Writes and reads of 16 MB, 20 at a time, leave no memory allocated."""
    measuring('''
context = ml.create_context().result(60)
check(context)
one = tensor(context, 16)
data = np.ones((16, MB // 4), np.float32)
start = used(context)
for _ in range(20):
    context.write_tensor(one, data)
reads = [context.read_tensor(one) for _ in range(20)]
for promise in reads:
    promise.result(60)
assert (reads[-1].result() == 1).all()
del reads, promise
wait_until_free(context, start, 40 * MB)
''', memory)


@pytest.mark.parametrize("garbage", ["tensors", "dropped objects", "a graph"])
def test_another_context_needs_it(child, vulkan, garbage):
    """The heap is full of memory that an idle context has destroyed. Another context gets it before
    the first context's timeline would free it."""
    child(f'''RESIDENT = False{MEASURE}
GARBAGE = {garbage!r}
from webnn_vk.runtime import timeline
timeline.QUIET_SECONDS = 3600  # no timeline sees to it
from tests.support.contexts import open_context
heap = ((256 * MB, ("device_local",)),)
first, second = (open_context("vulkan", limits={{"memory_heaps": heap}}) for _ in range(2))
assert first._state.device.driver._memory._usage is second._state.device.driver._memory._usage
def fill():
    if GARBAGE == "a graph":
        builder = MLGraphBuilder(first)
        x = builder.input("x", {{"data_type": "float32", "shape": [1, 1000]}})
        w = [builder.constant(np.ones((1000, 40000), np.float32) * i) for i in range(1)]
        graph = builder.build({{"y": builder.matmul(x, w[0])}}).result(60)
        graph.destroy()
        return
    made = [tensor(first, 50) for _ in range(4)]
    first.fence().wait(60)
    if GARBAGE == "tensors":
        for each in made:
            each.destroy()
    else:
        made.append(made)  # a cycle, which the collector alone finds
gc.disable()
fill()
for _ in range(2):
    got = [tensor(second, 50) for _ in range(4)]
    second.write_tensor(got[3], np.full((50, MB // 4), 7, np.float32))
    assert (second.read_tensor(got[3]).result(60) == 7).all()
    for each in got:
        each.destroy()
    first, second = second, first
''', environment={"WEBNN_VK_DEVICE": "vulkan"})


@pytest.mark.large
@pytest.mark.parametrize("memory", MEMORY)
def test_a_flood_of_writes(measuring, memory):
    """150 writes of 16 MB behind a busy device once took 2.5 GB."""
    measuring('''
context = ml.create_context().result(60)
check(context)
device, gate = context._state.device, threading.Event()
webnn.MLContext._write_and_wait = lambda *arguments: False  # it would wait for the gate
gate.set()
wait = device.wait
device.wait = lambda batch: (gate.wait(), wait(batch))
one = tensor(context, 16)
gate.clear()
data = np.ones((16, MB // 4), np.float32)
staging = context._state.timeline.staging
host_memory.begin_peak()
start, least = used(context), host_memory.held()
def flood():
    for i in range(150):
        context.write_tensor(one, data)
thread = threading.Thread(target=flood)
thread.start()
while not staging._waiting:
    time.sleep(0.001)
assert staging.bytes == 256 * MB, staging.bytes
assert 240 * MB < used(context) - start < 400 * MB, (used(context) - start) >> 20
gate.set()
thread.join()
assert (context.read_tensor(one).result(60) == 1).all()
assert host_memory.peak() - least < 400 * MB
''', memory)

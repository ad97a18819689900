"""Destroyed memory returns to the system while the context is idle, and at once when another
context runs out of memory."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.sample(0.5)

#: Reads how much memory the process has and waits until it falls. One second is promised; ten are
#: allowed, because the machine may be busy.
MEASURE = '''
import gc
MB = 1 << 20

def resident():
    with open("/proc/self/status") as status:
        lines = dict(line.split(":", 1) for line in status)
    return sum(int(lines[name].split()[0]) << 10 for name in ("RssAnon", "RssShmem"))

def goes_back(start, most, reserved=None):
    """Seconds until no more than `most` bytes over `start` are held; no call is made meanwhile."""
    begin = time.monotonic()
    while resident() - start > most or (reserved and reserved() > most):
        assert time.monotonic() - begin < 10, (
            f"{(resident() - start) / MB:.0f} MB are still held", reserved and reserved())
        time.sleep(0.05)
    return time.monotonic() - begin

def reserved_by(context):
    """The memory that the driver has taken from the heaps, read without freeing any."""
    driver = getattr(context._state.device, "driver", None)
    if driver is None:
        return None
    usage = driver._memory._usage
    return lambda: sum(usage.bytes)

def tensor(context, megabytes):
    shape = {"data_type": "float32", "shape": [megabytes, MB // 4]}
    return context.create_tensor({**shape, "readable": True, "writable": True}).result(60)
'''
DEVICES = ["cpu", "vulkan"]


@pytest.fixture(params=DEVICES)
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    return {"WEBNN_VK_DEVICE": request.param, "WEBNN_VK_VALIDATE": "0", "WEBNN_VK_DUMP_SPIRV": ""}


@pytest.mark.large
@pytest.mark.parametrize("how", ["destroyed", pytest.param("dropped", marks=pytest.mark.explore)])
def test_tensors(child, environment, how):
    printed = child(MEASURE + f'''
context = ml.create_context().result(60)
check(context)
start = resident()
data = np.ones((100, MB // 4), np.float32)
tensors = [tensor(context, 100) for _ in range(4)]
for each in tensors:
    context.write_tensor(each, data)
context.fence().wait(60)
assert resident() - start > 450 * MB
del data
for each in tensors:
    {"each.destroy()" if how == "destroyed" else "pass"}
del each, tensors
print(goes_back(start, 40 * MB, reserved_by(context)))
check(context)
''', environment=environment)
    print(printed)


@pytest.mark.large
def test_a_graph_and_its_weights(child, environment):
    printed = child(MEASURE + '''
context = ml.create_context().result(60)
check(context)
start = resident()

def large():
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [1, 5000]})
    w = builder.constant(np.ones((5000, 10000), np.float32))
    y = builder.matmul(builder.matmul(x, w), builder.constant(np.ones((10000, 5000), np.float32)))
    return builder.build({"y": y}).result(120)

graph = large()
y = context.compute(graph, {"x": np.ones((1, 5000), np.float32)})["y"]
assert (y == 5e7).all()
assert resident() - start > 350 * MB
graph.destroy()
print(goes_back(start, 60 * MB, reserved_by(context)))
check(context)
''', environment=environment)
    print(printed)


@pytest.mark.large
def test_what_was_staged(child, environment):
    """Writes and reads of 16 MB, 20 at a time, leave no memory allocated."""
    printed = child(MEASURE + '''
context = ml.create_context().result(60)
check(context)
one = tensor(context, 16)
data = np.ones((16, MB // 4), np.float32)
start = resident()
for _ in range(20):
    context.write_tensor(one, data)
reads = [context.read_tensor(one) for _ in range(20)]
for promise in reads:
    promise.result(60)
assert (reads[-1].result() == 1).all()
del reads, promise
print(goes_back(start, 40 * MB))
''', environment=environment)
    print(printed)


@pytest.mark.parametrize("garbage", ["tensors", "dropped objects", "a graph"])
def test_another_context_needs_it(child, vulkan, garbage):
    """The heap is full of memory that an idle context has destroyed. Another context gets it before
    the first context's timeline would free it."""
    child(MEASURE + f'''
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
def test_a_flood_of_writes(child, environment):
    """150 writes of 16 MB behind a busy device once took 2.5 GB."""
    printed = child(MEASURE + '''
context = ml.create_context().result(60)
check(context)
device, gate = context._state.device, threading.Event()
gate.set()
wait = device.wait
device.wait = lambda batch: (gate.wait(60), wait(batch))
one = tensor(context, 16)
gate.clear()
data = np.ones((16, MB // 4), np.float32)
start, most = resident(), 0
def flood():
    for i in range(150):
        context.write_tensor(one, data)
thread = threading.Thread(target=flood)
thread.start()
while thread.is_alive():
    most = max(most, resident() - start)
    if most > 250 * MB:
        gate.set()
    time.sleep(0.001)
assert (context.read_tensor(one).result(60) == 1).all()
print(most >> 20)
assert 240 * MB < most < 400 * MB, most >> 20
''', environment=environment)
    print(printed)

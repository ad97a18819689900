"""No thread can be started: creation has no partial effects, and every call can be repeated."""

from __future__ import annotations

import os

import pytest

#: `Starts(k)`: from the k-th start on, starting a thread fails. Running threads are not affected.
#: Whatever has to end is waited for; the test's limit ends a hang.
STARTS = '''
import _thread, gc
from webnn_vk.support import background

class Starts:
    real = threading.Thread.start, _thread.start_new_thread

    def __init__(self, most):
        self.left = most
        self.refused = threading.Event()

    def check(self):
        if not self.left:
            self.refused.set()
            raise RuntimeError("can't start new thread")
        self.left -= 1

    def __enter__(self):
        def start(thread):
            self.check()
            Starts.real[0](thread)
        def start_new_thread(*arguments):
            self.check()
            return Starts.real[1](*arguments)
        threading.Thread.start, background._thread.start_new_thread = start, start_new_thread
        return self

    def __exit__(self, *_):
        threading.Thread.start, background._thread.start_new_thread = Starts.real

def no_workers():
    """Whether no thread is waiting for a job."""
    background._IDLE_SECONDS = 0.0
    while any(type(thread) is background._Thread for thread in threading.enumerate()):
        time.sleep(0.005)

def rest():
    """Waits until the library's threads have ended."""
    while [name for name in threads() if "worker" not in name]:
        gc.collect()
        time.sleep(0.01)

def devices():
    """Opened Vulkan devices."""
    module = sys.modules.get("webnn_vk.driver.vulkan.driver")
    return len(module._open) if module else 0

background._IDLE_SECONDS = 0.0
'''


@pytest.fixture(params=["cpu", "vulkan"])
def environment(request: pytest.FixtureRequest) -> dict[str, str]:
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    return {"WEBNN_VK_DEVICE": request.param}


def test_a_context_is_made_or_not(child, environment):
    """At every failing start, the first included: OperationError, and nothing is left over."""
    printed = child(STARTS + '''
k, failed = 0, 0
while True:
    no_workers()
    with Starts(k):
        try:
            context = ml.create_context().result(60)
        except webnn.OperationError as error:
            assert "no thread can be started" in str(error) and "ulimit -u" in str(error), error
            failed += 1
        else:
            break
    rest()
    gc.collect()
    assert devices() == 0, k
    k += 1
check(context)
context.destroy()
rest()
print(failed)
''', environment=environment)
    # The worker, and the two threads of the timeline.
    assert int(printed) >= 3


def test_a_graph_is_built_or_its_builder_stays(child, environment):
    child(STARTS + '''
context = ml.create_context().result(60)
check(context)
builder = MLGraphBuilder(context)
x = builder.input("x", SHAPE)
y = builder.add(builder.relu(builder.add(builder.matmul(x, builder.constant(W)), x)), x)
for _ in range(3):
    no_workers()
    with Starts(0):
        promise = builder.build({"y": y})
        error = promise.exception(60)
        assert isinstance(error, webnn.OperationError), error
        assert "no thread can be started" in str(error)
        # It takes more operators too.
        y = builder.identity(y)
check(context, builder.build({"y": y}).result(60))
try:
    builder.build({"y": y}).result(60)
    raise SystemExit("built twice")
except webnn.InvalidStateError:
    pass
''', environment=environment)


def test_everything_else_needs_no_new_thread_or_says_so(child, environment):
    child(STARTS + '''
context = ml.create_context().result(60)
graph = check(context)
x = np.ones((4, 4), np.float32)
no_workers()
with Starts(0):
    check(context, graph)
    tensor = context.create_tensor({**SHAPE, "readable": True, "writable": True}).result(60)
    context.write_tensor(tensor, x)
    assert (context.read_tensor(tensor).result(60) == x).all()
    assert context.fence().wait(60)
    promises = [context.compute_async(graph, {"x": n * x}) for n in range(3)]
    for n, promise in enumerate(promises):
        y = promise.result(60)["y"]
        np.testing.assert_allclose(y, np.maximum(n * (x @ W + x), 0) + n * x, rtol=1e-5)
    tensor.destroy()
    graph.destroy()
''', environment=environment)


def test_a_promised_run_of_an_engine_has_a_thread_or_says_so(child):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnx")
    environment = {"WEBNN_VK_DEVICE": "cpu", "WEBNN_VK_CPU_ENGINE": "onnxruntime"}
    child(STARTS + '''
context = ml.create_context().result(60)
graph = check(context)
x = np.ones((4, 4), np.float32)
no_workers()
with Starts(0):
    error = context.compute_async(graph, {"x": x}).exception(60)
    assert isinstance(error, webnn.OperationError) and "no thread" in str(error), error
y = context.compute_async(graph, {"x": x}).result(60)["y"]
np.testing.assert_allclose(y, np.maximum(x @ W + x, 0) + x, rtol=1e-5)
''', environment=environment)


@pytest.mark.parametrize("how", ["destroy", "destroy in a callback", "drop"])
def test_destroying_can_be_repeated_and_ends(child, environment, how):
    """The context is lost at once. Its threads and its device are freed once a thread can be
    started, with or without a further call."""
    child(STARTS + f'''
HOW = {how!r}
context = ml.create_context().result(60)
check(context)
timelines = context._state.timeline
closed = timelines._closed
no_workers()
with Starts(0) as starts:
    lost = context.lost
    if HOW == "destroy":
        for _ in range(3):
            context.destroy()
    elif HOW == "drop":
        pass
    else:
        tensor = context.create_tensor({{**SHAPE, "readable": True}}).result(60)
        done = threading.Event()
        def callback(promise):
            context.destroy()
            done.set()
        context.read_tensor(tensor).add_done_callback(callback)
        assert done.wait(60)
        del tensor, callback
    if HOW != "drop":
        assert lost.result(60).message == "destroy() was called"
        try:
            build(context).result(60)
            raise SystemExit("it was built")
        except webnn.InvalidStateError:
            pass
        context.destroy()
    del context, lost, timelines
    gc.collect()
    assert starts.refused.wait()
# Nobody calls again.
assert closed.wait()
rest()
gc.collect()
assert devices() == 0
''', environment=environment)


@pytest.mark.skipif(os.geteuid() != 0, reason="RLIMIT_NPROC binds a user other than root alone")
def test_a_limit_of_the_user(child, environment):
    """RLIMIT_NPROC as enforced by the system, for another user."""
    child(STARTS + '''
warm = webnn.Settings.from_environment()
with ml.create_context().result(60) as context:
    check(context)
rest()
os.setgid(54322)
os.setuid(54322)
failed = 0
restore = lower(resource.RLIMIT_NPROC, 1)
for _ in range(10):
    try:
        context = ml.create_context().result(60)
        check(context)
        raise SystemExit("there was a thread")
    except webnn.DOMException as error:
        assert isinstance(error, webnn.OperationError), error
        failed += 1
restore()
rest()
print(failed)
with ml.create_context().result(60) as context:
    check(context)
''', environment={**environment, "WEBNN_VK_CACHE": "off", "WEBNN_VK_DUMP_SPIRV": ""})

"""Forks at bad moments: what works in the child, and what is refused with advice. Each runs in a
new process with a time limit, because the test looks for hangs."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap

import pytest

from tests.support.paths import ROOT

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")

START = """
import faulthandler, gc, multiprocessing, os, sys, threading, time
import numpy as np
import webnn_vk as webnn
from webnn_vk import InvalidStateError, MLGraphBuilder, NotSupportedError, Settings, ml

faulthandler.enable()
SHAPE = {"data_type": "float32", "shape": [3]}

def open_context(device=DEVICE):
    return ml.create_context(settings=Settings(device=device)).result(60)

def computes(context):
    builder = MLGraphBuilder(context)
    graph = builder.build({"y": builder.neg(builder.input("x", SHAPE))}).result(60)
    result = context.compute(graph, {"x": np.arange(3, dtype=np.float32)})["y"]
    assert result.tolist() == [0, -1, -2], result
    return True

def works(device):
    with open_context(device) as context:
        return computes(context)

def forked(function, *arguments):
    "Call it in a forked child; its exit status, None where it hangs."
    sys.stdout.flush()
    child = os.fork()
    if not child:
        try:
            function(*arguments)
            sys.stdout.flush()
            os._exit(0)
        except BaseException:
            import traceback
            traceback.print_exc()
            os._exit(1)
    return ended(child)

def ended(child):
    end = time.monotonic() + 200
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(child, 6)  # it says where it was
    os.waitpid(child, 0)

def refused(call):
    try:
        call()
    except (InvalidStateError, NotSupportedError) as error:
        return str(error)
    raise AssertionError("not refused")
"""


def run(device: str, script: str) -> list[str]:
    code = f"DEVICE = {device!r}\n{START}{textwrap.dedent(script)}"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, text=True, timeout=280,
                          capture_output=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr and "Fatal" not in done.stderr, done.stderr
    return done.stdout.splitlines()


@pytest.fixture(params=["cpu", "vulkan"])
def device(request: pytest.FixtureRequest) -> str:
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    return request.param


def test_fork_while_contexts_are_pending(device: str) -> None:
    """At any moment of their creation: the child's own context on the CPU device works, and the
    parent's promises report that they will never settle."""
    assert run(device, """
        def child():
            assert works("cpu")
            for promise in pending:
                if not promise.done():
                    assert "before a fork" in refused(lambda: promise.result(60)), promise
        pending = []
        for pause in (0, 0.001, 0.01, 0.03, 0.1, 0.3):
            pending = [ml.create_context(settings=Settings(device=DEVICE)) for _ in range(2)]
            time.sleep(pause)
            assert forked(child) == 0, pause
        assert all(computes(promise.result(60)) for promise in pending)
        print("end")
        """) == ["end"]


def test_no_fork_comes_amid_an_import(device: str) -> None:
    """Forks wait for imports that the library's threads make. Otherwise a child would have half a
    module for ever, or wait for the module's lock."""
    assert run(device, """
        import tempfile
        from webnn_vk.support import forks
        folder = tempfile.TemporaryDirectory()
        os.environ.pop("WEBNN_VK_CACHE", None)
        os.environ["XDG_CACHE_HOME"] = folder.name
        guarded, disturbed = [], []
        class Watch:
            def find_spec(self, name, path=None, target=None):
                frame = sys._getframe()
                while frame is not None and frame.f_code.co_name != "_find_and_load":
                    frame = frame.f_back
                # Without that frame a package is looked for only.
                if frame and threading.current_thread() is not threading.main_thread():
                    owned = any(lock._is_owned() for lock in forks._locks.values())
                    (guarded if owned else disturbed).append(name)
        sys.meta_path.insert(0, Watch())
        context = open_context()
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [2, 3]})
        product = builder.matmul(builder.softmax(x, 1), builder.constant(np.ones((3, 4), "f4")))
        graph = builder.build({"y": builder.relu(builder.triangular(product))}).result(60)
        context.save_graph("key", graph).result(60)
        again = context.load_graph("key").result(60)
        print(context.compute(again, {"x": np.zeros((2, 3), "f4")})["y"].tolist())
        print(len(guarded) > 0, disturbed)
        """) == ["[[1.0, 1.0, 1.0, 1.0], [0.0, 1.0, 1.0, 1.0]]", "True []"]


def test_fork_while_the_drivers_are_asked(vulkan: None) -> None:
    """During the first listing of the devices, on another thread: the child makes its own list."""
    assert run("vulkan", """
        threading.Thread(target=webnn.devices).start()
        def child():
            assert len(webnn.devices()) >= 2
            assert works("vulkan")
        for pause in (0, 0.02, 0.1):
            time.sleep(pause)
            assert forked(child) == 0, pause
        assert works("vulkan")
        print("end")
        """) == ["end"]


def test_the_parent_on_the_cpu_and_the_child_on_vulkan(vulkan: None) -> None:
    """The parent has listed the devices and opened the CPU."""
    assert run("cpu", """
        context = open_context()
        listed = [device.name for device in webnn.devices()]
        from webnn_vk.gpu import enumerate_adapters
        adapter = enumerate_adapters()[0]
        def child():
            assert works("vulkan") and works("cpu")
            assert [device.name for device in webnn.devices()] == listed
            # Of the parent's instance, which is none of the child's.
            device = adapter.request_device().result(60)
            assert computes(ml.create_context(device).result(60))
            assert "make a new one in the child" in refused(lambda: computes(context))
            assert forked(grandchild) == 0
        def grandchild():
            assert "spawn" in refused(lambda: works("vulkan"))
            assert works("cpu")
        assert forked(child) == 0
        assert computes(context) and works("vulkan")
        print("end")
        """) == ["end"]


def test_the_parent_on_vulkan(vulkan: None) -> None:
    """The child may open the CPU device. Vulkan is refused at once, and so is an unnamed device: a
    silent change of device must not happen."""
    out = run("vulkan", """
        context = open_context()
        assert computes(context)
        def child():
            assert works("cpu")
            print(refused(lambda: works("vulkan")))
            print(refused(lambda: ml.create_context(settings=Settings()).result(60)))
            print(refused(context.fence))
            from webnn_vk.gpu import request_adapter
            print(refused(lambda: request_adapter().result(60)))
            print(len(webnn.devices()))
        assert forked(child) == 0
        assert computes(context)
        """)
    way_out = "start the child by multiprocessing's 'spawn' method"
    assert len(out) == 5 and out[4] == "1"
    assert all(way_out in line for line in out[:4]), out


def test_fork_in_the_middle_of_builds(device: str) -> None:
    """Shaders are compiled by threads that the child doesn't have: it compiles its own."""
    assert run(device, """
        context = open_context()
        def slow(number):
            builder = MLGraphBuilder(context)
            x = builder.input("x", {"data_type": "float32", "shape": (1, 30 + number, 30 + number)})
            for i in range(12):
                x = builder.matmul(builder.softmax(builder.add(
                    x, builder.constant("float32", i)), i % 3), x)
            return builder.build({"y": x})
        def child():
            assert works("cpu")
            for promise in builds:
                if not promise.done():
                    assert "before a fork" in refused(lambda: promise.result(60))
            from webnn_vk.codegen.compiler import find_compiler
            from webnn_vk.codegen.glsl import Source
            compiler = find_compiler()
            if compiler is not None:
                source = "#version 450\\nlayout(local_size_x = 1) in; void main() {}"
                assert isinstance(compiler.compile([Source(source)])[0], bytes)
        builds = []
        for number, pause in enumerate((0, 0.01, 0.05, 0.2)):
            builds.append(slow(number))
            time.sleep(pause)
            assert forked(child) == 0, pause
        for promise in builds:
            assert promise.result(60)
        print("end")
        """) == ["end"]


def test_fork_in_a_callback(device: str) -> None:
    """On the context's own thread, which in the child is the main thread and may wait."""
    assert run(device, """
        context = open_context()
        tensor = context.create_tensor({**SHAPE, "readable": True}).result(60)
        over = threading.Event()
        statuses = []
        def child():
            assert works("cpu")
            assert "fork" in refused(lambda: context.read_tensor(tensor).result(60))
        def callback(promise):
            statuses.append(forked(child))
            over.set()
        context.read_tensor(tensor).add_done_callback(callback)
        assert over.wait(200)
        assert statuses == [0], statuses
        assert context.read_tensor(tensor).result(60).tolist() == [0, 0, 0]
        print("end")
        """) == ["end"]


def test_a_child_that_returns_from_the_callback_ends(device: str) -> None:
    """The child runs none of the parent's pending work, callbacks included."""
    assert run(device, """
        context = open_context()
        tensor = context.create_tensor({**SHAPE, "readable": True}).result(60)
        parent, children, said = os.getpid(), [], []
        def fork(promise):
            child = os.fork()
            if child:
                children.append(child)
        def say(promise):
            if os.getpid() != parent:
                os._exit(9)
            said.append(promise.result())
        # Into arrays: other reads may be over at once, and this thread would call the callbacks.
        arrays = [np.ones(3, np.float32) for _ in range(2)]
        first, second = (context.read_tensor(tensor, array) for array in arrays)
        first.add_done_callback(fork)
        second.add_done_callback(say)
        while not (children and said):
            time.sleep(0.01)
        status = ended(children[0])
        assert status == 0, status
        assert said == [None] and not np.any(arrays)
        assert context.read_tensor(tensor).result(60).tolist() == [0, 0, 0]
        print("end")
        """) == ["end"]


def test_ends_in_the_child(device: str) -> None:
    """destroy() is refused; `with`, the garbage collector and process exit leave the parent's
    objects alone."""
    assert run(device, """
        context = open_context()
        assert computes(context)
        tensor = context.create_tensor({**SHAPE, "readable": True}).result(60)
        graph_builder = MLGraphBuilder(context)
        graph = graph_builder.build({"y": graph_builder.abs(graph_builder.input("x", SHAPE))}
                                    ).result(60)
        pending = context.read_tensor(tensor)
        child = os.fork()
        if not child:
            for made in (tensor, graph, context):
                assert "before a fork" in refused(made.destroy)
            with context:
                pass
            del context, tensor, graph, graph_builder, pending, made
            gc.collect()
            assert works("cpu")
            sys.exit(7)  # atexit runs
        status = ended(child)
        assert status == 7, status
        assert computes(context)
        print("end")
        """) == ["end"]


def test_many_forks_amid_work(device: str) -> None:
    """Threads dispatch, read and create tensors all the time while children are forked and end."""
    assert run(device, """
        context = open_context()
        builder = MLGraphBuilder(context)
        graph = builder.build({"y": builder.neg(builder.input("x", SHAPE))}).result(60)
        stop = False
        counts = [0] * 3
        def work(index):
            while not stop:
                x = context.create_tensor({**SHAPE, "writable": True}).result(60)
                y = context.create_tensor({**SHAPE, "readable": True}).result(60)
                context.write_tensor(x, np.full(3, 1 + index, np.float32))
                context.dispatch(graph, {"x": x}, {"y": y})
                assert context.read_tensor(y).result(60).tolist() == [-1.0 - index] * 3
                counts[index] += 1
        threads = [threading.Thread(target=work, args=(i,)) for i in range(3)]
        for thread in threads:
            thread.start()
        def child():
            assert "before a fork" in refused(context.fence)
            assert "before a fork" in refused(context.destroy)
            gc.collect()
            assert works("cpu")
        while not min(counts):
            time.sleep(0.01)
        statuses = [forked(child) for _ in range(8)]
        stop = True
        for thread in threads:
            thread.join(60)
        assert statuses == [0] * 8, statuses
        assert computes(context)
        print("end")
        """) == ["end"]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_pools_of_processes(device: str, method: str, tmp_path: object) -> None:
    """The parent has a context on the device; the pool computes on it where it can."""
    module = f"{tmp_path}/pooled.py"
    inside = device if method == "spawn" else "cpu"
    with open(module, "w") as file:
        file.write(f"DEVICE = {inside!r}\n{START}\ndef work(number):\n    return works(DEVICE)\n")
    assert run(device, f"""
        sys.path.insert(0, {str(tmp_path)!r})
        context = open_context()
        assert computes(context)
        import pooled
        if __name__ == "__main__":
            with multiprocessing.get_context({method!r}).Pool(2) as pool:
                print(pool.map_async(pooled.work, range(4)).get(120))
            assert computes(context)
        """) == ["[True, True, True, True]"]


def test_a_fork_waits_no_longer_than_said() -> None:
    """For a driver that never answers, for example."""
    assert run("cpu", """
        from webnn_vk.support import forks
        forks.PATIENCE = 0.3
        def hold():
            with forks.undisturbed():
                held.set()
                leave.wait()
        held, leave = threading.Event(), threading.Event()
        threading.Thread(target=hold, daemon=True).start()
        held.wait(60)
        seen = []
        forks.register(seen.append)
        def child():
            assert seen == [False] and forks.count() == 1
            with forks.undisturbed():
                pass
            assert works("cpu")
        assert forked(child) == 0 and seen == [] and forks.count() == 0
        leave.set()
        print("end")
        """) == ["end"]

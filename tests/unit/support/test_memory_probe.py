"""Memory is probed before code that crashes or hangs when it is exhausted."""

import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from webnn_vk.support import background, memory_probe
from webnn_vk.support.event import Event
from webnn_vk.support.parallel_map import spread

LIMITED = """
import resource
from webnn_vk.support import memory_probe
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + (4 << 20), -1))
memory_probe.require(1 << 16)
for size in (1 << 24, 1 << 80):
    try:
        memory_probe.require(size)
    except MemoryError as error:
        assert str(size) in str(error)
    else:
        raise AssertionError(size)
try:
    memory_probe.require_for_thread()
except RuntimeError as error:
    print(error)
"""


@pytest.fixture
def full(monkeypatch):
    """This thread runs out of memory."""
    caller, real = threading.get_ident(), memory_probe.require

    def require(size):
        if threading.get_ident() != caller:
            return real(size)
        raise MemoryError(f"no room for {size} bytes")

    monkeypatch.setattr(memory_probe, "require", require)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_limit_of_address_space():
    done = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "can't start new thread: no room for" in done.stdout


def test_a_thread_that_could_not_begin_is_not_started(full):
    """CPython waits for ever for a thread that found no memory to start."""
    thread = background.TimelineThread(target=lambda: None)
    with pytest.raises(RuntimeError, match="can't start new thread: no room"):
        thread.start()
    assert not thread.is_alive()


def test_the_caller_does_the_helpers_work(full):
    assert set(spread(lambda _: threading.get_ident(), range(5), 4)) == {threading.get_ident()}


def test_a_model_without_room_is_not_begun(full):
    """Protobuf would end the process."""
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    from webnn_vk.compiler.ir.onnx import model_of, serialized
    from webnn_vk.compiler.ir.to_onnx import Fragment
    from webnn_vk.onnx.reading import read_model

    graph = helper.make_graph([], "graph", [], [])
    model = helper.make_model(graph, producer_name="x" * 1000)
    data = model.SerializeToString()
    for call in (
        lambda: serialized(model),
        lambda: read_model(data),
        lambda: model_of(Fragment(constants={"w": np.ones(4, np.float32)})),
    ):
        with pytest.raises(MemoryError, match="no room for"):
            call()
    assert onnx.load_from_string(data).producer_name == "x" * 1000


def test_waiting_needs_no_lock(monkeypatch):
    """If the system has no memory for a lock, the flag is polled."""
    def refuse():
        raise RuntimeError("can't allocate lock")

    gate = Event()
    opener = threading.Timer(0.05, gate.set)
    opener.start()
    monkeypatch.setattr("webnn_vk.support.event.threading", SimpleNamespace(Lock=refuse))
    assert not gate.wait(0.001)
    assert gate.wait(60)
    monkeypatch.undo()
    opener.join()

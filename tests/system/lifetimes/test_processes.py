"""The ends of processes: forks, exits and Ctrl-C with work or builds in flight."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap

import pytest

from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT

START = """
import os, signal, sys, threading, time
import numpy as np
from tests.system.lifetimes.conftest import adder, build, ints, make_tensor
from webnn_vk import InvalidStateError, MLGraphBuilder, Settings, ml
from webnn_vk.api import build as build_module
from webnn_vk.runtime.work import Await

def open_context():
    return ml.create_context(settings=Settings(device=DEVICE)).result()

def slow_graph(context, count=60):
    # Softmax and sums of many shapes: many pipelines on a Vulkan device, much work on any.
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": (1, 200, 200)})
    for i in range(count):
        added = builder.add(x, builder.constant("float32", i))
        x = builder.matmul(builder.softmax(added, i % 3), x)
    return builder.build({"y": x})

def dispatch_slow(context, times=10, held=False):
    graph = slow_graph(context, 30).result()
    x, y = (make_tensor(context, (1, 200, 200), "float32").result() for _ in range(2))
    if held:
        hold(context)
    for _ in range(times):
        context.dispatch(graph, {"x": x}, {"y": y})
    return context.read_tensor(y), graph

gate = threading.Event()

def hold(context):
    # What is queued from here on waits for the gate.
    context._state.stream.enqueue(Await(gate.wait))

def hold_builds():
    make = build_module._make_graph
    build_module._make_graph = lambda *given: (gate.wait(), make(*given))[1]

"""


@pytest.fixture(params=["cpu", "vulkan"])
def device(request):
    if request.param == "vulkan":
        require_vulkan()
    return request.param


def start(device, script, **options):
    code = f"DEVICE = {device!r}\n{START}{textwrap.dedent(script)}"
    return subprocess.Popen(
        [sys.executable, "-X", "faulthandler", "-c", code], cwd=ROOT, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, **options,
    )


def run(device, script, code=0):
    process = start(device, script)
    try:
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == code, out + err
    assert "Fatal Python error" not in err and "Traceback" not in err, err
    return out


# -- fork ------------------------------------------------------------------------------------------
def test_a_forked_child_is_refused_everything(device):
    out = run(device, """
        context = open_context()
        graph = adder(context)
        x, y, z = (make_tensor(context).result() for _ in range(3))
        fence = context.fence()
        hold(context)
        pending = context.read_tensor(x)
        child = os.fork()
        if child == 0:
            calls = {
                "dispatch": lambda: context.dispatch(graph, {"a": x, "b": y}, {"y": z}),
                "create": lambda: make_tensor(context).result(60),
                "constant": lambda: context.create_constant_tensor(
                    {"data_type": "int32", "shape": (1,)}, ints(1)).result(60),
                "read": lambda: context.read_tensor(x).result(60),
                "write": lambda: context.write_tensor(x, ints(1, 2, 3, 4)),
                "build": lambda: build(context, lambda b, a: b.abs(a), "a").result(60),
                "compute": lambda: context.compute(graph, {"a": ints(1, 2, 3, 4),
                                                           "b": ints(1, 2, 3, 4)}),
                "pending": lambda: pending.result(60),
                "fence": lambda: context.fence(),
                "wait": lambda: fence.wait(60),
                "tensor.destroy": x.destroy,
                "graph.destroy": graph.destroy,
                "destroy": context.destroy,
            }
            for name, call in calls.items():
                try:
                    call()
                except InvalidStateError as error:
                    assert "fork" in str(error), (name, error)
                else:
                    assert False, name
            with context, x, graph:
                pass  # their ends are not this process's
            del context, graph, x, y, z, pending, fence, calls, call
            __import__("gc").collect()
            print("child", flush=True)
            sys.exit(0)
        _, status = os.waitpid(child, 0)
        assert status == 0, status
        gate.set()
        context.write_tensor(x, ints(1, 2, 3, 4))
        context.dispatch(graph, {"a": x, "b": y}, {"y": z})
        print(context.read_tensor(z).result(60).tolist(), pending.result(60).tolist())
        """)
    assert out.splitlines() == ["child", "[1, 2, 3, 4] [0, 0, 0, 0]"]


def test_multiprocessing_with_fork(device):
    out = run(device, """
        import multiprocessing
        context = open_context()
        def work(queue):
            try:
                make_tensor(context).result(60)
            except InvalidStateError as error:
                queue.put(str(error))
        queue = multiprocessing.get_context("fork").Queue()
        process = multiprocessing.get_context("fork").Process(target=work, args=(queue,))
        process.start()
        print(queue.get(timeout=60))
        process.join(60)
        print(process.exitcode)
        """)
    advice = {
        "cpu": "; make a new one in the child process",
        "vulkan": ", which Vulkan devices don't survive; make one on the CPU device in the child "
        "process, or start the child by multiprocessing's 'spawn' method",
    }
    assert out == f"this context was made before a fork{advice[device]}\n0\n"


# -- exit ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("what", [
    "pending = dispatch_slow(open_context())",
    "context = open_context(); pending = slow_graph(context)",
    "pending = [ml.create_context(settings=Settings(device=DEVICE)) for _ in range(3)]",
    "context = open_context(); pending = slow_graph(context); context.destroy()",
    "context = open_context(); make_tensor(context).result(); context.destroy()",
    "context = open_context(); del context",
    # A daemon thread that keeps calling.
    """context = open_context()
def call():
    while True:
        make_tensor(context)
threading.Thread(target=call, daemon=True).start()
time.sleep(0.2)""",
])
@pytest.mark.sample(0.5)
def test_exit_with_something_in_flight(device, what):
    assert run(device, f"{what}\nprint('end')") == "end\n"


def test_exit_from_a_thread_s_exception(device):
    process = start(device, "pending = dispatch_slow(open_context())\nraise ValueError('mine')")
    _, err = process.communicate(timeout=200)
    assert process.returncode == 1 and err.rstrip().endswith("ValueError: mine"), err


# -- Ctrl-C ----------------------------------------------------------------------------------------
@pytest.mark.parametrize("wait", [
    "hold_builds(); go(lambda: slow_graph(context).result())",
    "go(dispatch_slow(context, held=True)[0].result)",
    """import asyncio
async def main():
    pending, _ = dispatch_slow(context, held=True)
    print('go', flush=True)
    await pending
asyncio.run(main())""",
    "pending = dispatch_slow(context, held=True); go(context.fence().wait)",
], ids=["build", "read", "await", "fence"])
def test_ctrl_c(device, wait):
    """What is waited for does not end before the signal; it goes on while the process ends."""
    script = f"""context = open_context()
slow_graph(context, 30).result()
def go(wait):
    print('go', flush=True)
    wait()
try:
{textwrap.indent(wait, "    ")}
finally:
    gate.set()
"""
    # A new process group, like a terminal's: compilers that we started get the signal too.
    process = start(device, script, start_new_session=True)
    try:
        assert process.stdout.readline() == "go\n", process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)
        _, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == -signal.SIGINT, err
    assert err.rstrip().endswith("KeyboardInterrupt") and "Fatal" not in err, err


def test_after_ctrl_c_the_context_works_on(device):
    process = start(device, """
        context = open_context()
        pending, graph = dispatch_slow(context, 5, held=True)
        try:
            print("go", flush=True)
            pending.result()
        except KeyboardInterrupt:
            pass
        gate.set()
        t = make_tensor(context).result()
        context.write_tensor(t, ints(1, 2, 3, 4))
        print(context.read_tensor(t).result().tolist(), pending.done())
        """, start_new_session=True)
    try:
        assert process.stdout.readline() == "go\n", process.stderr.read()
        os.killpg(process.pid, signal.SIGINT)
        out, err = process.communicate(timeout=200)
    finally:
        process.kill()
    assert process.returncode == 0, err
    assert out == "[1, 2, 3, 4] True\n"

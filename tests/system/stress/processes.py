"""Child processes: forked at any moment of the other threads' calls, and spawned. In a forked
child, calls on the parent's objects are refused at once, and a new context computes. A spawned
child has its own devices."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import sys
import threading
import time
import traceback
from multiprocessing import resource_tracker
from typing import Any

import numpy as np

from tests.system.stress.kinds import Kind
from tests.system.stress.model import Failure
from tests.system.stress.world import PATIENCE, World
from webnn_vk import DOMException, InvalidStateError, MLGraphBuilder, Settings, ml

_places = threading.Semaphore(1)
# It stays, with a file descriptor: this is not a leak.
resource_tracker.ensure_running()


def compute(device: str) -> None:
    """A graph on a context that this process created."""
    with ml.create_context(settings=Settings(device=device)).result(PATIENCE) as context:
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "int32", "shape": [4]})
        graph = builder.build({"y": builder.add(x, builder.constant(np.arange(4, dtype=np.int32)))})
        found = context.compute(graph.result(PATIENCE), {"x": np.ones(4, np.int32)})["y"]
        if found.tolist() != [1, 2, 3, 4]:
            raise Failure(f"a child on {device}: {found}")


def _in_child(world: World) -> None:
    context = world.context
    descriptor = {"data_type": "int32", "shape": [4]}
    for call in (context.fence, context.destroy,
                 lambda: context.create_tensor(descriptor).result(PATIENCE)):
        try:
            call()
        except InvalidStateError as error:
            if "fork" not in str(error) and "lost" not in str(error):
                raise Failure(f"a forked child: {error}") from error
        else:
            raise Failure("a forked child may use its parent's context")
    compute("cpu")
    try:
        compute("vulkan")
    except DOMException as error:
        if "spawn" not in str(error):
            raise Failure(f"a forked child: {error}") from error
    else:
        raise Failure("a forked child may use Vulkan after its parent")


def fork(caller: Any, world: World) -> None:
    """A child forked at this moment; it may not hang."""
    child = os.fork()
    if not child:
        try:
            faulthandler.enable()
            _in_child(world)
            os._exit(0)
        except BaseException:
            traceback.print_exc()
            sys.stderr.flush()
        finally:
            os._exit(1)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        found, status = os.waitpid(child, os.WNOHANG)
        if found:
            if status:
                raise Failure(f"a forked child ended with {os.waitstatus_to_exitcode(status)}")
            return
        time.sleep(0.005)
    os.kill(child, signal.SIGABRT)  # faulthandler shows where it hangs
    os.waitpid(child, 0)
    raise Failure("a forked child hangs")


def spawn(caller: Any, world: World) -> bool:
    """A child by multiprocessing's "spawn", with its own device; only a few at a time."""
    if not _places.acquire(blocking=False):
        return False
    try:
        _spawn(caller)
        time.sleep(1)
    finally:
        _places.release()
    return True


def _spawn(caller: Any) -> None:
    device = caller.random.choice(("cpu", "vulkan"))
    child = multiprocessing.get_context("spawn").Process(target=compute, args=(device,))
    child.start()
    child.join(PATIENCE)
    if child.exitcode is None:
        child.kill()
        child.join()
        raise Failure(f"a spawned child hangs on {device}")
    if child.exitcode:
        raise Failure(f"a spawned child on {device} ended with {child.exitcode}")
    child.close()


KINDS = (
    Kind("fork", fork, share=10, event=True),
    Kind("spawn", spawn, share=1, event=True),
)

"""Limited systems: child processes whose threads, files, memory, disk or compiler fail while they
compute, and contexts that stay idle until destroyed memory is freed.

`python -m tests.system.stress.shortages KIND SEED DEVICE` is the child of one kind.
"""

from __future__ import annotations

import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.paths import ROOT
from tests.system.stress.kinds import Kind
from tests.system.stress.model import Failure
from tests.system.stress.world import PATIENCE, World
from webnn_vk import (
    DOMException,
    MLContext,
    MLGraphBuilder,
    NotSupportedError,
    OperationError,
    Settings,
    UnknownError,
    ml,
)
from webnn_vk.codegen import process

SHAPE = {"data_type": "int32", "shape": [4096]}
#: Seconds between two children of one kind, and calls in each.
PAUSE, CALLS = 20.0, 25
#: Errors allowed when a resource is missing; MemoryError if the call itself has no memory.
SAID = (OperationError, UnknownError, MemoryError)


# -- what is short, in the child
@contextmanager
def threads(chance: random.Random) -> Iterator[None]:
    """Half of all thread starts fail."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name.startswith("webnn_vk") and chance.random() < 0.5:
            raise RuntimeError("can't start new thread")
        start(thread)

    threading.Thread.start = refuse  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = start  # type: ignore[method-assign]


@contextmanager
def limited(what: int, value: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(what)
    resource.setrlimit(what, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(what, (soft, hard))


@contextmanager
def files(chance: random.Random) -> Iterator[None]:
    """Few file descriptors are left."""
    held: list[int] = []
    with limited(resource.RLIMIT_NOFILE, 256):
        try:
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        except OSError:
            pass
        for _ in range(chance.randrange(8)):
            os.close(held.pop())
        try:
            yield
        finally:
            for descriptor in held:
                os.close(descriptor)


def memory(chance: random.Random) -> Any:
    """A few MB of address space are left."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    room = chance.choice((16, 64, 200)) << 20
    return limited(resource.RLIMIT_AS, pages * resource.getpagesize() + room)


def disk(chance: random.Random) -> Any:
    """Files can't grow beyond some bytes."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    return limited(resource.RLIMIT_FSIZE, chance.choice((0, 100, 5000)))


@contextmanager
def compiler(chance: random.Random) -> Iterator[None]:
    """The only compiler crashes, hangs, writes garbage or fails."""
    process.START_SECONDS, process.SHADER_SECONDS = 0.5, 0.0
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder, "glslangValidator")
        fault = chance.choice(("exit 1", "kill -9 $$", "echo garbage > 0.comp.spv", "sleep 60"))
        script.write_text(f"#!/bin/sh\n{fault}\n")
        script.chmod(0o755)
        before = os.environ["PATH"]
        os.environ["PATH"] = f"{folder}:{before}"
        try:
            yield
        finally:
            os.environ["PATH"] = before


SHORT: dict[str, Callable[[random.Random], Any]] = {
    "threads": threads, "files": files, "memory": memory, "disk": disk, "compiler": compiler,
}


# -- what the child does
class Child:
    def __init__(self, seed: int, device: str) -> None:
        self.random = random.Random(seed)
        self.settings = Settings(device=device, glslang="process", cache=tempfile.mkdtemp())
        self.contexts: list[MLContext] = []
        self.worked = self.refused = 0

    def open(self) -> None:
        self.contexts.append(ml.create_context(settings=self.settings).result(PATIENCE))
        if len(self.contexts) > 3:
            self.contexts.pop(0).destroy()

    def compute(self) -> None:
        context = self.random.choice(self.contexts)
        factor = self.random.randint(2, 9)
        builder = MLGraphBuilder(context)
        x = builder.input("x", SHAPE)
        y = builder.add(builder.mul(x, builder.constant("int32", factor)), x)
        graph = builder.build({"y": y}).result(PATIENCE)
        data = np.arange(4096, dtype=np.int32)
        found = context.compute(graph, {"x": data})["y"]
        if not (found == data * (factor + 1)).all():
            raise Failure(f"{found[:8]}")

    def write(self) -> None:
        context = self.random.choice(self.contexts)
        tensor = context.create_tensor(
            {"data_type": "uint8", "shape": [self.random.choice((1 << 10, 1 << 24))],
             "readable": True, "writable": True}).result(PATIENCE)
        context.write_tensor(tensor, np.full(tensor.shape, 7, np.uint8))
        if not (context.read_tensor(tensor).result(PATIENCE) == 7).all():
            raise Failure("another value was written")
        tensor.destroy()

    def attempt(self, call: Callable[[], None]) -> None:
        try:
            call()
            self.worked += 1
        except SAID:
            self.refused += 1
        except NotSupportedError as error:
            if "VK_ERROR_" not in str(error):  # messages of the loader or the driver
                raise
            self.refused += 1

    def run(self, kind: str) -> None:
        warnings.simplefilter("ignore")
        self.open()
        self.compute()
        self.write()
        with SHORT[kind](self.random):
            for _ in range(CALLS):
                self.attempt(self.random.choice((self.open, self.compute, self.write)))
        # As before, with existing and new objects. A lost context gave its reason.
        self.contexts = [context for context in self.contexts if not context.lost.done()]
        self.open()
        for context in self.contexts:
            everyone, self.contexts = self.contexts, [context]
            self.compute()
            self.write()
            self.contexts = everyone
        timelines = [context._state.timeline for context in self.contexts]
        for context in self.contexts:
            context.destroy()
        for timeline in timelines:
            if not timeline._closed.wait(PATIENCE):
                raise Failure(f"{timeline.device.name} is not closed")
        print(f"{kind}: {self.worked} worked, {self.refused} refused")


# -- what the parent does
def ended_by_others(said: str) -> bool:
    """Whether a child without memory ended in foreign code that does not check its allocator's
    result: the C library, for a thread's variables; the interpreter, which waits for ever for a
    thread that had no memory to begin (CPython's issue 140746); protobuf, by SIGSEGV in a call from
    ``onnx`` or from our modules that write ONNX; the driver, on its own thread, which runs no
    Python, or as it compiles a pipeline (docs/failures.md)."""
    if re.search("Exception ignored in thread started by.*\nMemoryError", said):
        return True
    if "cannot allocate memory for thread-local data" in said:
        return True
    if "Fatal Python error: Segmentation fault" in said and "Current thread" not in said:
        return True
    crash = re.search(r'Fatal Python error: Segmentation fault.*?Current thread [^\n]*\n  File '
                      r'"([^"]*)"', said, re.DOTALL)
    return crash is not None and crash[1].endswith(_UNCHECKED)


#: Where protobuf's messages are made (``onnx/helper.py`` and others of that package, and our own
#: modules), and where LLVM compiles.
_UNCHECKED = (
    "site-packages/onnx/helper.py", "site-packages/onnx/numpy_helper.py",
    "webnn_vk/compiler/ir/onnx.py", "webnn_vk/compiler/ir/to_onnx/writer.py",
    "webnn_vk/driver/vulkan/pipelines.py",
)


class Shortage:
    """One child of a kind at a time, and only a few in total."""

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._lock = threading.Lock()
        self._next = 0.0

    def __call__(self, caller: Any, world: World) -> bool:
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if time.monotonic() < self._next:
                return False
            device = "vulkan" if world.driver is not None else "cpu"
            seed = str(caller.random.randrange(10**6))
            command = [sys.executable, "-X", "faulthandler", "-m", "tests.system.stress.shortages",
                       self._kind, seed, device]
            environment = dict(os.environ)
            if self._kind == "memory":
                # The layer ends the process (std::bad_alloc) when it has no memory.
                environment["WEBNN_VK_VALIDATE"] = "0"
            done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT,
                                  timeout=3 * PATIENCE, env=environment)
            ended = self._kind == "memory" and ended_by_others(done.stderr)
            if done.returncode and not ended:
                said = done.stderr  # the way it ended is at the beginning
                if len(said) > 6000:
                    said = f"{said[:3000]}\n…\n{said[-3000:]}"
                raise Failure(f"{' '.join(command)}: {done.returncode}\n{said}")
            self._next = time.monotonic() + PAUSE
            return True
        finally:
            self._lock.release()


_resting = threading.Lock()


def rest(caller: Any, world: World) -> bool:
    """A new context frees destroyed memory while no calls are made."""
    if not _resting.acquire(blocking=False):
        return False
    try:
        device = "vulkan" if world.driver is not None else "cpu"
        with ml.create_context(settings=Settings(device=device)).result(PATIENCE) as context:
            descriptor = {"data_type": "uint8", "shape": [16 << 20], "writable": True}
            tensors = [context.create_tensor(descriptor).result(PATIENCE) for _ in range(3)]
            for tensor in tensors:
                context.write_tensor(tensor, np.ones(16 << 20, np.uint8))
            context.fence().wait(PATIENCE)
            for tensor in tensors:
                tensor.destroy()
            del tensor, tensors
            opened = context._state.device
            end = time.monotonic() + PATIENCE
            while _held(opened):
                if time.monotonic() > end:
                    raise Failure(f"{opened.name}: {_held(opened)} bytes are kept by who rests")
                time.sleep(0.05)
    except DOMException as error:
        # A fault that was planted for another context of the process.
        if "injected" not in str(error):
            raise
    finally:
        _resting.release()
    return True


def _held(device: Any) -> int:
    """Bytes that a device holds, measured without making it free any."""
    driver = getattr(device, "driver", None)
    if driver is None:
        return device.memory_in_use()
    return sum(block.size for pool in driver._memory._all_pools
               for block in list(pool.blocks.values()))


KINDS = (
    Kind("idle_context", rest, share=4, event=True, apart=True),
    *[Kind(f"exhausted_{kind}", Shortage(kind), share=2, event=True, apart=True)
      for kind in ("threads", "files", "memory", "disk")],
    Kind("failing_compiler", Shortage("compiler"), share=2, event=True, apart=True),
)


if __name__ == "__main__":
    Child(int(sys.argv[2]), sys.argv[3]).run(sys.argv[1])

"""Makes and drops many; what is left of them.

    python -m tests.system.lifetimes.cycles KIND COUNT DEVICE

KIND: tensors, graphs or contexts. Half are destroyed, half are only dropped. Prints JSON: bytes of
device memory before and after, and by how much the process grew since the warm-up: exact only with
MALLOC_ARENA_MAX=1 in the environment (see test_no_growth). With --count: by how many bytes and
objects of the library, and how many Vulkan objects are left over.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
import threading
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.contexts import settled_bytes
from tests.support.vulkan_faults import FaultyLibrary
from webnn_vk import MLContext, MLGraphBuilder, MLTensorDescriptor, Settings, ml
from webnn_vk.runtime.timeline import QUIET_SECONDS
from webnn_vk.support import background

DESCRIPTOR = MLTensorDescriptor("float32", (1024,), readable=True, writable=True)
LIBC = ctypes.CDLL(None)
ONES = np.ones(1024, np.float32)


def open_context(device: str) -> MLContext:
    return ml.create_context(settings=Settings(device=device)).result()


def tensors(context: MLContext, count: int) -> None:
    """Created in groups, written and read; then destroyed with the reads pending, or dropped."""
    for _ in range(count // 50):
        made = [p.result() for p in [context.create_tensor(DESCRIPTOR) for _ in range(50)]]
        for i, tensor in enumerate(made):
            context.write_tensor(tensor, ONES)
            context.read_tensor(tensor)
            if i % 2:
                tensor.destroy()


def graphs(context: MLContext, count: int) -> None:
    """Built with a constant, run on the same two tensors; then destroyed at once, or dropped."""
    x, y = (context.create_tensor(DESCRIPTOR).result() for _ in range(2))
    for i in range(count):
        builder = MLGraphBuilder(context)
        a = builder.input("a", DESCRIPTOR)
        result = builder.softmax(builder.add(a, builder.constant(ONES)), 0)
        graph = builder.build({"y": result}).result()
        context.dispatch(graph, {"a": x}, {"y": y})
        if i % 2:
            graph.destroy()


def contexts(device: str, count: int) -> None:
    """Opened, used for one tensor; then destroyed, or dropped."""
    for i in range(count):
        context = open_context(device)
        tensor = context.create_tensor(DESCRIPTOR).result()
        context.write_tensor(tensor, ONES)
        assert context.read_tensor(tensor).result()[0] == 1
        closed = context._state.timeline._closed
        if i % 2:
            context.destroy()
        del context, tensor
        gc.collect()
        assert closed.wait(60)


def runs(context: MLContext, device: str) -> dict[str, Callable[[int], None]]:
    return {
        "tensors": lambda n: tensors(context, n),
        "graphs": lambda n: graphs(context, n),
        "contexts": lambda n: contexts(device, n),
    }


def resident_bytes() -> int:
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)  # free memory that was kept for later
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def counted(kind: str, count: int, device: str) -> dict[str, int]:
    """What is left of ``count``, in counts. Workers end, whose number depends on the scheduler."""
    tracemalloc.start()
    background._IDLE_SECONDS = 0.0
    library = None
    if device == "vulkan":
        from webnn_vk.driver.vulkan import binding

        library = FaultyLibrary(binding)
        binding.lib, binding.device_function = library, library.device_function
    context = open_context(device)
    run = runs(context, device)[kind]

    def now() -> dict[str, int]:
        settled_bytes(context)
        while any(type(t) is background._Thread for t in threading.enumerate()):
            time.sleep(0.01)
        gc.collect()
        return {
            "device bytes": settled_bytes(context),
            # The library's: cffi keeps a type for each length of an array, which depends on how
            # the timeline groups its work.
            "objects": sum(type(o).__module__.startswith("webnn_vk") for o in gc.get_objects()),
            "bytes": tracemalloc.get_traced_memory()[0],
            "Vulkan objects": len(library.alive) if library is not None else 0,
        }

    def left() -> dict[str, int]:
        time.sleep(2 * QUIET_SECONDS)  # a timeline lets go of its last work
        return {name: value - before[name] for name, value in now().items()}

    run(count)
    before = dict.fromkeys(now(), 0)
    before = left()
    run(count)
    return left()


def main(kind: str, count: int, device: str) -> dict[str, Any]:
    context = open_context(device)
    run = runs(context, device)[kind]

    def measured() -> tuple[int, int]:
        gc.collect()
        return settled_bytes(context), resident_bytes()

    run(max(count // 4 // 50 * 50, 50))
    before, resident = measured()
    run(count)
    after, grown = measured()
    return {"cycles": count, "device_bytes_before": before, "device_bytes": after,
            "grown_bytes": grown - resident}


if __name__ == "__main__":
    measure = counted if "--count" in sys.argv else main
    print(json.dumps(measure(sys.argv[1], int(sys.argv[2]), sys.argv[3])))

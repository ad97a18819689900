"""Makes and drops many; what is left of them.

    python -m tests.system.lifetimes.cycles KIND COUNT DEVICE

KIND: tensors, graphs or contexts. Half are destroyed, half are only dropped. Prints JSON: bytes of
device memory before and after, and by how much the process grew since the warm-up: exact only with
MALLOC_ARENA_MAX=1 in the environment (see test_no_leak).
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np

from tests.support.contexts import settled_bytes
from webnn_vk import MLContext, MLGraphBuilder, MLTensorDescriptor, Settings, ml

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


def resident_bytes() -> int:
    if hasattr(LIBC, "malloc_trim"):
        LIBC.malloc_trim(0)  # free memory that was kept for later
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def main(kind: str, count: int, device: str) -> dict[str, Any]:
    context = open_context(device)
    run = {
        "tensors": lambda n: tensors(context, n),
        "graphs": lambda n: graphs(context, n),
        "contexts": lambda n: contexts(device, n),
    }[kind]

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
    print(json.dumps(main(sys.argv[1], int(sys.argv[2]), sys.argv[3])))

"""The device by our own tools; the time of a dependent load and of a dependent dispatch; PyTorch's
copy and products of 8192 as ceilings."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from ..pytorch import cuda_randn, torch, torch_seconds
from ..session import Job, Session

#: One invocation follows a circle of indices, `steps` times.
_CHASE = """#version 450
layout(local_size_x = 1) in;
layout(binding = 0) buffer Next { uint next[]; };
layout(binding = 1) buffer End { uint end[]; };
layout(push_constant) uniform Params { uint steps; };
void main() {
    uint at = 0;
    for (uint i = 0; i < steps; ++i) at = next[at];
    end[0] = at;
}"""
#: Each dispatch reads what the one before wrote.
_COUNT = """#version 450
layout(local_size_x = 1) in;
layout(binding = 0) buffer Count { uint count[]; };
void main() { count[0] += 1; }"""


def run(session: Session) -> None:
    def command(name: str, *options: str) -> None:
        done = subprocess.run([sys.executable, "-m", "webnn_vk", name, *options, "--json"],
                              capture_output=True, text=True, timeout=60)
        if not done.stdout:
            raise RuntimeError(done.stderr[-400:])
        session.tell(name, text=json.loads(done.stdout))

    def ceiling(what: str, make: Callable[[], tuple[float, Callable[[], Any]]]) -> None:
        count, function = make()
        session.tell("ceiling", what=what, rate=count / torch_seconds(session, function),
                     clock=session.clock())

    def copy() -> tuple[float, Callable[[], Any]]:
        x, y = (torch().empty(1 << 30, dtype=torch().uint8, device="cuda") for _ in range(2))
        return 2 * x.numel(), lambda: y.copy_(x)

    def product(dtype: str) -> tuple[float, Callable[[], Any]]:
        a, b = (cuda_randn((8192, 8192), dtype) for _ in range(2))
        return 2 * 8192**3, lambda: a @ b

    jobs: list[Job] = [("info", partial(command, "info", "--device", session.device)),
                       ("doctor", partial(command, "doctor"))]
    # Within the L1, the L2 and the memory of today's GPUs.
    for kilobytes in session.choose((16, 4096, 1 << 20), (16, 64)):
        jobs.append((f"pointer chase, {kilobytes} KiB", partial(_chase, session, kilobytes)))
    jobs.append(("dependent dispatches", partial(_dispatches, session)))
    if torch() is not None:
        jobs.append(("copy", lambda: ceiling("bytes copied, read and written", copy)))
        jobs += [(f"product {d}", partial(ceiling, f"product 8192 {d}", partial(product, d)))
                 for d in ("float16", "float32")]
    session.run(jobs)


def circle(count: int, distance: int) -> np.ndarray:
    """For each index that is a multiple of ``distance`` the next one of a circle through all of
    these, in random order."""
    order = np.random.default_rng(3).permutation(count // distance).astype(np.uint32) * distance
    following = np.zeros(count, np.uint32)
    following[order] = np.roll(order, -1)
    return following


def _open() -> Any:
    from webnn_vk import gpu

    return gpu.request_adapter().result().request_device().result()


def _timed(device: Any, record: Callable[[Any], None]) -> float:
    """Seconds on the device of the shortest of five passes, after one to warm up."""
    from webnn_vk import gpu

    queries = device.create_query_set(type="timestamp", count=2)
    usage = gpu.GPUBufferUsage.QUERY_RESOLVE | gpu.GPUBufferUsage.COPY_SRC
    times = device.create_buffer(size=16, usage=usage)
    encoder = device.create_command_encoder()
    with encoder.begin_compute_pass(timestamp_writes={
        "query_set": queries, "beginning_of_pass_write_index": 0, "end_of_pass_write_index": 1,
    }) as compute:
        record(compute)
    encoder.resolve_query_set(queries, 0, 2, times, 0)
    recorded, found = encoder.finish(), list[float]()
    for _ in range(6):
        device.queue.submit([recorded])
        begin, end = device.queue.read_buffer(times).result().view(np.uint64).tolist()
        found.append((end - begin) / 1e9)
    return min(found[1:])


def _chase(session: Session, kilobytes: int) -> None:
    """The time of a load whose address is what the load before gave, 128 bytes or more apart."""
    from webnn_vk import gpu

    device = _open()
    indices, steps = circle(kilobytes * 256, 32), session.choose(1 << 14, 1 << 10)
    storage = gpu.GPUBufferUsage.STORAGE | gpu.GPUBufferUsage.COPY_SRC
    following = device.create_buffer_with_data(data=indices, usage=storage)
    end = device.create_buffer_with_data(data=np.zeros(1, np.uint32), usage=storage)
    pipeline = device.create_compute_pipeline(module=device.create_shader_module(code=_CHASE))

    def record(compute: Any) -> None:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.create_bind_group(entries=[following, end]))
        compute.set_push_constants(np.uint32(steps).tobytes())
        compute.dispatch_workgroups(1)

    seconds, at = _timed(device, record), 0
    for _ in range(steps):
        at = int(indices[at])
    found = int(device.queue.read_buffer(end).result().view(np.uint32)[0])
    session.tell("right", what=f"pointer chase, {kilobytes} KiB", ok=found == at)
    session.tell("latency", what=f"dependent load, {kilobytes} KiB", seconds=seconds / steps,
                 clock=session.clock())
    device.destroy()


def _dispatches(session: Session) -> None:
    """The time of a dispatch of one invocation behind a barrier, in one recording."""
    from webnn_vk import gpu

    device, count = _open(), session.choose(1000, 50)
    buffer = device.create_buffer_with_data(
        data=np.zeros(1, np.uint32), usage=gpu.GPUBufferUsage.STORAGE | gpu.GPUBufferUsage.COPY_SRC)
    pipeline = device.create_compute_pipeline(module=device.create_shader_module(code=_COUNT))

    def record(compute: Any) -> None:
        compute.set_pipeline(pipeline)
        compute.set_bind_group(0, device.create_bind_group(entries=[buffer]))
        for _ in range(count):
            compute.dispatch_workgroups(1)

    seconds = _timed(device, record)
    found = int(device.queue.read_buffer(buffer).result().view(np.uint32)[0])
    session.tell("right", what="dependent dispatches", ok=found == 6 * count)
    session.tell("latency", what=f"dependent dispatch, {count} in a row", seconds=seconds / count,
                 clock=session.clock())
    device.destroy()

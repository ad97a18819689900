"""A device's measured peaks: 32-bit multiply-adds and bytes of memory per second."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.codegen import KernelSpec
from webnn_vk.codegen.spec import Buffer, Param
from webnn_vk.codegen.store import ShaderUnavailable
from webnn_vk.driver import (
    DispatchCommand,
    DriverError,
    PipelineRequest,
    TimestampCommand,
    Timestamps,
)
from webnn_vk.support.dataclass import dataclass

#: Invocations of a workgroup, as the shader has it without specialisation.
GROUP = 64
#: The number of bytes moved: larger than caches; fewer in software, which is slow.
MOVED_BYTES, MOVED_BY_SOFTWARE = 256 << 20, 64 << 20
#: Multiply-adds of one invocation and round: eight vectors of four.
_LANES = 32
_ROUNDS, _INVOCATIONS = 256, 16384
#: The shortest dispatch that is measured, in seconds, if there is memory for a longer one.
_LONG_ENOUGH = 0.004
#: Times each is measured; the best counts.
_TRIES = 5
#: Results by device, kept for the life of the process.
_known: dict[str, Roofline] = {}


@dataclass(frozen=True)
class Roofline:
    """Floating-point operations (a multiply-add is two) and bytes of memory per second."""

    flops: float
    bandwidth: float

    def seconds(self, flops: float, size: float) -> float:
        """The shortest time in which the device can do these operations and move these bytes."""
        return max(flops / self.flops, size / self.bandwidth)


def specs() -> list[KernelSpec]:
    """The kernels for copying and for multiply-adds."""
    buffers = (Buffer("x", "float32", "r", 4), Buffer("y", "float32", "w", 4))
    params = tuple(map(Param, ("count", "rounds")))
    return [KernelSpec("probe.comp.j2", buffers, params, options={"fma": fma})
            for fma in (False, True)]


def measure(device: Any) -> Roofline | None:
    """The peaks of a `DriverDevice`, measured by running kernels on it (some tenths of a second).
    None without these kernels, memory or timestamps. Nothing else should run on the device."""
    if device.driver.timestamps is None:
        return None
    key = f"{device.profile.uuid} {device.profile.name} {device.profile.driver_version}"
    if key not in _known:
        try:
            _known[key] = _measured(device)
        except (DriverError, ShaderUnavailable, ValueError):
            return None
    return _known[key]


def _measured(device: Any) -> Roofline:
    driver = device.driver
    copy, fma = specs()
    modules = device.shaders.get([copy, fma])
    pipelines = driver.pipelines([
        PipelineRequest(module, spec.binding_count, spec.param_bytes, (), spec.template)
        for spec, module in zip((copy, fma), modules, strict=True)
    ])
    driver.wait(driver.precompile(pipelines))
    most = MOVED_BY_SOFTWARE if device.profile.is_software else MOVED_BYTES
    size = min(most, device.profile.max_storage_buffer_range) // 16 * 16
    source, target = (driver.allocate(size, label="probe") for _ in range(2))
    host = driver.allocate(1024, host=True, label="probe")
    try:
        # Numbers that stay finite: 1.0 × 0 + 0.
        np.frombuffer(host.mapped, np.uint8)[:] = 0
        host.flush()
        reads = ((source, 0, size), (target, 0, size))
        moved = _seconds(driver, _dispatch(copy, pipelines[0], reads, size // 16, 0))
        reads = ((host, 0, 1024), (target, 0, size))
        count, computed = min(_INVOCATIONS, size // 16), 0.0
        while computed < _LONG_ENOUGH:
            computed = _seconds(driver, _dispatch(fma, pipelines[1], reads, count, _ROUNDS))
            if computed < _LONG_ENOUGH:
                if 4 * count > size // 16:
                    break
                count *= 4
    finally:
        for allocation in (source, target, host):
            allocation.free()
    return Roofline(2 * _LANES * _ROUNDS * count / computed, 2 * size / moved)


def _dispatch(
    spec: KernelSpec, pipeline: Any, bindings: Any, count: int, rounds: int
) -> DispatchCommand:
    groups = -(-count // GROUP)
    wide = min(groups, 32768)
    push = spec.pack_params({"count": count, "rounds": rounds})
    return DispatchCommand(pipeline, bindings, push, (wide, -(-groups // wide), 1))


def _seconds(driver: Any, command: DispatchCommand) -> float:
    """The shortest time of a dispatch, after one that warms up."""
    timestamps: Timestamps = driver.timestamps
    recording = driver.record([TimestampCommand(0), command, TimestampCommand(1)])
    taken = []
    try:
        for _ in range(_TRIES + 1):
            driver.wait(driver.submit([recording]))
            start, end = timestamps.read(recording)
            taken.append(max(end - start, 1) * 1e-9)
    finally:
        recording.free()
    return min(taken[1:])

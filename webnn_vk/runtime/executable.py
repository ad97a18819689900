"""A program on a Vulkan device: its pipelines, memory and recorded command buffers."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import numpy as np

from ..driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    PipelineRequest,
    Recording,
)
from ..program import CopyStep, DeviceSegment, DispatchStep, HostSegment, Location, Program
from .driver_memory import DriverMemory
from .host import Arrays, run_host_segment
from .storage import Storage
from .work import Write

#: Recorded command buffers that a graph keeps, one per set of tensors.
MAX_RECORDINGS = 32


class DriverExecutable:
    """A program on one device: pipelines, intermediates, constants and recordings."""

    def __init__(self, device: DriverMemory, program: Program) -> None:
        self.device = device
        self.program = program
        self.uploads: list[Write] = []
        self.build_seconds: dict[str, float] = {}
        self.on_host = any(isinstance(part, HostSegment) for part in program.segments)
        self.flops = sum(step.flops for step in program.report.steps)
        start = time.perf_counter()
        specs = program.kernels
        modules = dict(zip(specs, device.shaders.get(specs), strict=True))
        self._stage("shaders", start)
        start = time.perf_counter()
        self._pipelines = self._make_pipelines(modules)
        device.wait_value(device.driver.precompile(list(self._pipelines.values())))
        self._stage("pipelines", start)
        start = time.perf_counter()
        self._fixed: dict[tuple[str, str | int], Any] = {}
        self._storages: list[Storage] = []
        self._allocate()
        self._stage("memory", start)
        self._recordings: OrderedDict[tuple[int, ...], list[Recording | HostSegment]] = (
            OrderedDict()
        )
        # The keys of recordings by the tensors that they name.
        self._keys: dict[int, set[tuple[int, ...]]] = {}
        device.add(self)

    def _stage(self, name: str, start: float) -> None:
        self.build_seconds[name] = time.perf_counter() - start

    def _make_pipelines(self, modules: Mapping[Any, bytes]) -> dict[Any, Any]:
        requests: dict[Any, PipelineRequest] = {}
        for segment in self.program.segments:
            for step in segment.steps if isinstance(segment, DeviceSegment) else ():
                if isinstance(step, DispatchStep):
                    spec = step.spec
                    requests.setdefault(
                        (spec, step.constants),
                        PipelineRequest(
                            modules[spec],
                            spec.binding_count,
                            spec.param_bytes if spec.param_storage == "push" else 0,
                            step.constants,
                            spec.template,
                        ),
                    )
        made = self.device.driver.pipelines(list(requests.values()))
        return dict(zip(requests, made, strict=True))

    def _allocate(self) -> None:
        program, device = self.program, self.device
        for i, size in enumerate(program.arenas):
            self._fixed["arena", i] = device.driver.allocate(size, label="arena")
        if program.params:
            storage = device.create_storage(len(program.params))
            self.uploads.append(Write(storage, np.frombuffer(program.params, np.uint8)))
            self._keep(("params", 0), storage)
        if program.host_size:
            self._fixed["host", 0] = device.driver.allocate(program.host_size, host=True)
        for i, value in enumerate(program.constants):
            storage = value.source
            if storage is None:
                storage = device.create_storage(value.descriptor.byte_length)
                flat = np.ascontiguousarray(value.data).reshape(-1)
                self.uploads.append(Write(storage, flat.view(np.uint8)))
            self._keep(("constant", i), storage)

    def _keep(self, place: tuple[str, str | int], storage: Storage) -> None:
        self._storages.append(storage)
        self._fixed[place] = storage.backing

    # -- recordings ----------------------------------------------------------------------------
    def recordings(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> list[Recording | HostSegment]:
        """One recording per device segment for this set of tensors, from the cache or made now."""
        key = tuple(
            [inputs[name].serial for name in self.program.inputs]
            + [outputs[name].serial for name in self.program.outputs]
        )
        with self.device.lock:
            found = self._recordings.get(key)
            if found is not None:
                self._recordings.move_to_end(key)
                return found
        found = self._record(inputs, outputs)
        with self.device.lock:
            self._recordings[key] = found
            for serial in key:
                self._keys.setdefault(serial, set()).add(key)
            if len(self._recordings) > MAX_RECORDINGS:
                self._drop(next(iter(self._recordings)))
        return found

    def forget(self, serial: int) -> None:
        """Give up the recordings that name a tensor, which is gone (lock held)."""
        for key in list(self._keys.get(serial, ())):
            self._drop(key)

    def _drop(self, key: tuple[int, ...]) -> None:
        for serial in key:
            keys = self._keys.get(serial)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._keys[serial]
        # Freed by the last reference, which the submission being put together may hold.
        del self._recordings[key]

    def _record(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> list[Recording | HostSegment]:
        places = dict(self._fixed)
        places |= {("input", name): s.backing for name, s in inputs.items()}
        places |= {("output", name): s.backing for name, s in outputs.items()}

        def bind(place: Location) -> tuple[Any, int, int]:
            return places[place.space, place.key], place.offset, place.size

        recorded: list[Recording | HostSegment] = []
        for segment in self.program.segments:
            if isinstance(segment, HostSegment):
                recorded.append(segment)
                continue
            commands: list[Command] = []
            for step in segment.steps:
                match step:
                    case DispatchStep():
                        pipeline = self._pipelines[step.spec, step.constants]
                        bindings = tuple(map(bind, step.bindings))
                        commands.append(
                            DispatchCommand(pipeline, bindings, step.push, step.groups)
                        )
                    case CopyStep(source, target):
                        a, at, size = bind(source)
                        b, to, room = bind(target)
                        commands.append(CopyCommand(a, at, b, to, min(size, room)))
                    case _:
                        commands.append(BarrierCommand())
            recorded.append(self.device.driver.record(commands))
        return recorded

    # -- CPU segments --------------------------------------------------------------------------
    def run_host(self, segment: HostSegment, arrays: Arrays) -> None:
        """Compute a CPU segment between two device segments; the device is at rest."""
        if segment.reads or segment.writes:
            block = self._fixed["host", 0]
            block.invalidate()
            memory = np.frombuffer(block.mapped, np.uint8)

        def view(value: Any, place: Location) -> np.ndarray:
            d = value.descriptor
            data = memory[place.offset : place.offset + d.byte_length]
            return data.view(d.numpy_dtype).reshape(d.shape)

        for value, place in segment.reads.items():
            arrays[value] = view(value, place)

        def made(value: Any, array: np.ndarray) -> None:
            if value in segment.writes:
                view(value, segment.writes[value])[...] = array

        run_host_segment(segment, arrays, made)
        if segment.writes:
            block.flush()

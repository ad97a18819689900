"""One kernel on the device, by any of its schedules: its operands in memory, filled with numbers,
and functions that time its dispatches and read its results."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels import Dispatch, KernelNode, Packed, Scratch, packing_of
from webnn_vk.driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
    Recording,
    TimestampCommand,
    timestamps_of,
)
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide, padded

from ..driver_memory import DriverMemory, translated
from ..executable import pipeline_request

#: Target duration of one measurement in seconds: dispatches are repeated until they take that long.
_LONG_ENOUGH = 1e-3
_MOST_REPEATS = 32
#: The least number of bytes that a GPU reads or writes between two uses of a constant, as in a
#: large model: more than its caches hold.
_BYTES_BETWEEN = 128 << 20
#: Contents of results before they are written: NaN as a float, -1 as an integer.
_POISON = 0xFF


@dataclass
class Trial:
    """A kernel by one schedule: its commands, the memory of its results and of the constants that
    it reads, and how often a measurement repeats it. ``copies``: of the constants, for further
    repetitions."""

    commands: list[Command]
    outputs: dict[Value, Any]
    constants: list[Any]
    repeats: int = 1
    recording: Recording | None = None
    copies: list[list[Any]] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)


class Workbench:
    """The operands of one kernel. ``close`` frees all memory. Raises MemoryError if the device has
    none left, and the errors of ``DriverMemory``."""

    def __init__(self, device: DriverMemory, node: KernelNode, fan: float) -> None:
        self._device, self._node = device, node
        self._driver = device.driver
        self._held: list[Any] = []
        # What is written before a measurement, to fill the caches.
        self._other: Any = None
        #: "timestamps" of the device, or "submits": seconds from a submit to its end.
        self.timed_by = "submits" if device.driver.timestamps is None else "timestamps"
        random = np.random.default_rng(0)
        try:
            self._operands = {
                value: self._fill(value, _numbers(random, value, fan if number else 1.0))
                for number, value in enumerate(node.reads)
            }
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Free the memory; trials are over."""
        for held in self._held:
            held.free()
        self._held.clear()

    def trial(self, dispatches: Sequence[Dispatch]) -> Trial:
        """The kernel's dispatches by one schedule, constants packed."""
        places: dict[Any, Any] = dict(self._operands)
        profile = self._device.profile
        packing = self._commands(packing_of(dispatches, profile), places)
        if packing:
            self._submit(packing)
        commands = self._commands(dispatches, places)
        outputs = {value: places[value] for value in self._node.writes}
        constants = [
            held for value, held in places.items()
            if isinstance(value, Packed) or (isinstance(value, Value) and value.is_constant)
        ]
        read = {id(held) for command in commands if isinstance(command, DispatchCommand)
                for held, _, _ in command.bindings}
        return Trial(commands, outputs, [held for held in constants if id(held) in read])

    def results(self, trial: Trial) -> list[np.ndarray]:
        """The results of a trial's dispatches, run once."""
        for held in trial.outputs.values():
            self._write(held, np.full(held.size, _POISON, np.uint8))
        self._submit(trial.commands)
        return [
            self._read(held, value.descriptor.byte_length)
            .view(value.descriptor.numpy_dtype).reshape(value.shape)
            for value, held in trial.outputs.items()
        ]

    def measure(self, trial: Trial) -> float:
        """Seconds of the dispatches of a trial, run now, often enough to be measurable."""
        if trial.recording is None:
            with translated():
                trial.recording = self._driver.record(self._timed(trial))
        seconds = self._run(trial.recording) / trial.repeats
        if not trial.seconds and trial.repeats == 1 and seconds < _LONG_ENOUGH / 2:
            trial.repeats = min(_MOST_REPEATS, int(_LONG_ENOUGH / max(seconds, 1e-9)))
            self.done(trial)
            return self.measure(trial)
        trial.seconds.append(seconds)
        return seconds

    def done(self, trial: Trial) -> None:
        """Free a trial's recording and copies."""
        if trial.recording is not None:
            trial.recording.free()
            trial.recording = None
        for held in (held for copies in trial.copies for held in copies):
            self._held.remove(held)
            held.free()
        trial.copies.clear()

    # -- on the device -------------------------------------------------------------------------
    def _timed(self, trial: Trial) -> list[Command]:
        """A trial's commands as often as they are repeated, between timestamps."""
        size = sum(held.size for held in trial.constants)
        if size and not self._device.profile.is_software:
            needed = 1 + ceil_divide(_BYTES_BETWEEN, size)
            trial.copies = [
                [self._copy(held) for held in trial.constants]
                for _ in range(min(trial.repeats, needed) - 1)
            ]
        turns: list[Sequence[Command]] = [trial.commands]
        for copies in trial.copies:
            other = dict(zip(map(id, trial.constants), copies, strict=True))
            turns.append([_with_memory(command, other) for command in trial.commands])
        repeated = [
            command for turn in range(trial.repeats) for command in turns[turn % len(turns)]
        ]
        if self._driver.timestamps is None:
            return repeated
        before: list[Command] = []
        if size and not self._device.profile.is_software:
            self._other = self._other or self._memory(_BYTES_BETWEEN, "other")
            before = [FillCommand(self._other, 0, _BYTES_BETWEEN), BarrierCommand()]
        return [*before, TimestampCommand(0), *repeated, TimestampCommand(1)]

    def _copy(self, held: Any) -> Any:
        copy = self._memory(held.size, "copy")
        self._submit([CopyCommand(held, 0, copy, 0, held.size)])
        return copy

    def _run(self, recording: Recording) -> float:
        start = time.perf_counter()
        with translated():
            self._driver.wait(self._driver.submit([recording]))
            seconds = time.perf_counter() - start
            if self._driver.timestamps is not None:
                first, last = timestamps_of(self._driver).read(recording)
                seconds = (last - first) * 1e-9
        return seconds

    def _submit(self, commands: Sequence[Command]) -> None:
        with translated():
            recording = self._driver.record(commands)
            self._driver.wait(self._driver.submit([recording]))
            recording.free()

    def _memory(self, size: int, label: str) -> Any:
        with translated():
            held = self._device.find(size, label=label)
        self._held.append(held)
        return held

    def _fill(self, value: Value, data: np.ndarray) -> Any:
        held = self._memory(padded(value.descriptor.byte_length), "operand")
        content = np.zeros(held.size, np.uint8)
        content[: data.nbytes] = data.reshape(-1).view(np.uint8)
        self._write(held, content)
        return held

    def _write(self, held: Any, data: np.ndarray) -> None:
        """Fill memory, through staging memory if the host can't access it."""
        target = held if held.mapped is not None else self._staging(len(data))
        target.write(data)
        if target is not held:
            self._submit([CopyCommand(target, 0, held, 0, len(data))])
            target.free()

    def _read(self, held: Any, size: int) -> np.ndarray:
        source = held if held.mapped is not None else self._staging(padded(size))
        if source is not held:
            self._submit([CopyCommand(held, 0, source, 0, padded(size))])
        data = source.read()[:size].copy()
        if source is not held:
            source.free()
        return data

    def _staging(self, size: int) -> Any:
        with translated():
            return self._device.find(size, host=True, label="staging")

    def _commands(self, dispatches: Iterable[Dispatch], places: dict[Any, Any]) -> list[Command]:
        """Dispatches with a barrier after each, for values in ``places``; other values get memory
        there."""
        dispatches = list(dispatches)
        requests, bindings = [], []
        modules = self._device.shaders.get([d.spec for d in dispatches])
        for dispatch, module in zip(dispatches, modules, strict=True):
            spec = dispatch.spec
            bound = [self._bound(binding, places) for binding in dispatch.bindings]
            block = spec.pack_params(dispatch.params) if spec.params else b""
            if spec.param_storage == "buffer":
                held = self._memory(padded(len(block)), "parameters")
                self._write(held, np.frombuffer(block, np.uint8))
                bound.append((held, 0, len(block)))
                block = b""
            bindings.append((tuple(bound), block))
            requests.append(
                pipeline_request(spec, module, dispatch.specialised, self._device.profile)
            )
        with translated():
            pipelines = self._driver.pipelines(requests)
        commands: list[Command] = []
        for dispatch, pipeline, (bound, push) in zip(dispatches, pipelines, bindings, strict=True):
            commands += [DispatchCommand(pipeline, bound, push, dispatch.groups), BarrierCommand()]
        return commands

    def _bound(self, binding: Any, places: dict[Any, Any]) -> tuple[Any, int, int]:
        target = binding.value
        if target not in places:
            scratch = isinstance(target, (Scratch, Packed))
            length = target.size if scratch else target.descriptor.byte_length
            places[target] = self._memory(padded(length), "scratch" if scratch else "result")
        held = places[target]
        length = held.size if isinstance(target, Scratch) else padded(
            target.size if isinstance(target, Packed) else target.descriptor.byte_length
        )
        size = length - binding.offset if binding.size is None else binding.size
        return held, binding.offset, size


def _with_memory(command: Command, other: Mapping[int, Any]) -> Command:
    """A dispatch with other memory in place of some, by the first one's ``id``."""
    if not isinstance(command, DispatchCommand):
        return command
    bindings = tuple(
        (other.get(id(held), held), offset, size) for held, offset, size in command.bindings
    )
    return replace(command, bindings=bindings)


def _numbers(random: np.random.Generator, value: Value, fan: float) -> np.ndarray:
    """Numbers around zero for an operand. Numbers that ``fan`` products are summed with are so
    small that sums stay near one. Integers are small, and of 8 bits 0 or 1, as conditions are."""
    shape, dtype = value.shape, value.descriptor.numpy_dtype
    if value.data_type in ("float32", "float16"):
        scale = np.float32((3.0 / fan) ** 0.5 if fan > 3 else 1.0)
        return ((random.random(shape, np.float32) * 2 - 1) * scale).astype(dtype)
    if value.data_type in ("int8", "uint8"):
        return random.integers(0, 2, shape).astype(dtype)
    return random.integers(1, 5, shape).astype(dtype)

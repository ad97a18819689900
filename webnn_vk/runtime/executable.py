"""A program on a Vulkan device: its pipelines, memory and recorded command buffers."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.compiler.program import (
    Constants,
    CopyStep,
    DeviceStep,
    DispatchStep,
    GraphReport,
    HostSegment,
    Program,
    Range,
    RepeatStep,
    SpecConstants,
    executed,
)
from webnn_vk.driver import (
    BarrierCommand,
    Command,
    CopyCommand,
    DeviceLost,
    DispatchCommand,
    DriverClosed,
    DriverError,
    ForkedProcess,
    OutOfDeviceMemory,
    OutOfHostMemory,
    PipelineRequest,
    Recording,
    TimestampCommand,
)
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import TEXEL_BYTES, room_for
from webnn_vk.support import background
from webnn_vk.support.cached_property import cached_property
from webnn_vk.support.heap import trim_heap

from .direct import DirectRun
from .driver_memory import DriverMemory, from_twins, to_twins, translated
from .engine import Refused
from .host import Arrays
from .kept_recordings import KeptRecordings, Key, Recordings, key_of
from .mapping import fill
from .setup import Setup, params_of
from .storage import KernelsRefused, Storage
from .throttle import Cost, limit_of, seconds_of
from .work import Order, Work, Write
from .workspace import Workspace

#: Errors that say nothing about the kernel being made or run.
NOT_OF_KERNELS = (DeviceLost, OutOfDeviceMemory, OutOfHostMemory, DriverClosed, ForkedProcess)

# The module and the specialisation constants.
_PipelineKey = tuple[KernelSpec, SpecConstants]
#: The memory of a range: allocation, offset and size in bytes.
Bind = Callable[[Range], tuple[Any, int, int]]


def pipeline_request(
    spec: KernelSpec, module: bytes, constants: tuple[tuple[int, bytes], ...],
    profile: DeviceProfile,
) -> PipelineRequest:
    """The pipeline of a kernel."""
    size = spec.subgroup_size(constants)
    return PipelineRequest(
        module, spec.binding_count, spec.param_bytes if spec.param_storage == "push" else 0,
        constants, spec.template,
        # A device that takes no such size has one only, or no such kernel was chosen.
        size if "subgroup_size_control" in profile.features else 0,
        texels=spec.texels, full_subgroups=size > 0,
    )


class DriverExecutable:
    """A program on one device: pipelines, intermediates, constants and recordings."""

    def __init__(
        self,
        device: DriverMemory,
        program: Program,
        constants: Constants,
        modules: Mapping[Any, bytes] | None = None,
        arenas: Sequence[Any] = (),
        refused: Refused | None = None,
    ) -> None:
        self.device = device
        self.program = program
        self.build_seconds: dict[str, float] = {}
        self.workspace: Workspace | None = Workspace(program)
        self.on_host = any(isinstance(part, HostSegment) for part in program.segments)
        self.cost = Cost(program.flops)
        start = time.perf_counter()
        specs = program.kernels
        if modules is None:
            modules = dict(zip(specs, device.shaders.get(specs), strict=True))
        self.modules = modules
        self._stage("shaders", start)
        self._pipelines: dict[_PipelineKey, Any] = {}
        # Where a processor is the device, it would do both itself.
        self._makes_late = bool(program.constants) and not device.profile.is_software
        self._make_pipelines(program.dispatches_of_setup if self._makes_late
                             else program.dispatches)
        start = time.perf_counter()
        # Allocations and storages by slot: those that all dispatches use.
        self._allocations: dict[int, Any] = {}
        self._host: Any = None
        #: The memory of intermediates: another graph's ``arenas``, and larger ones where needed.
        self.arenas = self._allocate(arenas)
        self.refused: Refused = {} if refused is None else refused
        self._prepared = device.engine.prepare(program, constants, self.refused)
        # Executables for other sizes have this report too.
        self._reported = program
        self._host_runs = {
            id(program.segments[number]): run for number, run in self._prepared.runs.items()
        }
        self._setup: Setup | None = Setup(device, program, constants)
        self._storages: dict[int, Storage] = self._setup.storages
        #: Memory that was filled after the set-up, without which no run is possible.
        self.parameters: tuple[Storage, ...] = ()
        # Bytes of the constants that CPU steps read, by number.
        self._host_constants: Mapping[int, np.ndarray] = self._setup.host_constants
        self._setup_errors: list[Exception] = []
        self._stage("memory", start)
        self.kept = KeptRecordings(device.lock, direct=not self.on_host)
        # Of recordings that were made before a run was measured.
        self._estimated: set[Key] = set()
        device.add(self)

    @property
    def report(self) -> GraphReport:
        """See ``work.Executable``."""
        return self._prepared.report(self._reported)

    @cached_property
    def written_only(self) -> frozenset[str]:
        """See ``work.Executable``. Elements of fewer than 4 bytes may need atomics."""
        slots = self.program.slots
        read = {
            slots[place.slot].name
            for part in self.program.segments for step in part.steps
            if isinstance(step, (DispatchStep, CopyStep, RepeatStep))
            for place, reads, _ in step.accesses()
            if reads and slots[place.slot].kind == "output"
        }
        return frozenset(
            name for name, d in self.program.outputs.items()
            if name not in read and d.numpy_dtype.itemsize >= 4
        )

    def _stage(self, name: str, start: float) -> None:
        self.build_seconds[name] = time.perf_counter() - start

    def _make_pipelines(self, dispatches: Iterable[DispatchStep]) -> None:
        """Make the pipelines of dispatches, except those that are there. KernelsRefused."""
        start, driver = time.perf_counter(), self.device.driver
        requests = {
            (step.spec, step.constants): pipeline_request(
                step.spec, self.modules[step.spec], step.constants, self.device.profile
            )
            for step in dispatches if (step.spec, step.constants) not in self._pipelines
        }
        try:
            made = dict(zip(requests, driver.pipelines(list(requests.values())), strict=True))
        except NOT_OF_KERNELS:
            raise
        except DriverError:
            made = self._one_by_one(requests)
        trim_heap()
        self.device.wait_value(driver.precompile(list(made.values())))
        # The heap of the driver's compiler is freed before memory for the weights is allocated.
        trim_heap()
        self._pipelines |= made
        self.build_seconds["pipelines"] = (
            self.build_seconds.get("pipelines", 0) + time.perf_counter() - start
        )

    def _one_by_one(
        self, requests: Mapping[_PipelineKey, PipelineRequest]
    ) -> dict[_PipelineKey, Any]:
        """The pipelines after the driver has refused one of them; KernelsRefused if it still does.
        """
        made, refused = {}, {}
        for key, request in requests.items():
            try:
                (made[key],) = self.device.driver.pipelines([request])
            except NOT_OF_KERNELS:
                raise
            except DriverError as error:
                refused[key] = f"the driver makes no pipeline of {request.name}: {error}"
        if refused:
            raise KernelsRefused(refused)
        return made

    def _allocate(self, given: Sequence[Any]) -> list[Any]:
        find = self.device.find
        arenas = list(given)
        for number, size in enumerate(self.program.arenas):
            if number == len(arenas):
                arenas.append(find(size, label="arena"))
            elif arenas[number].size < size:
                arenas[number] = find(size, label="arena")
        if self.program.host_size:
            self._host = find(self.program.host_size, host=True)
        for number, slot in enumerate(self.program.slots):
            if slot.kind == "arena":
                self._allocations[number] = arenas[slot.index]
            elif slot.kind == "host":
                self._allocations[number] = self._host
        return arenas

    def at(self, program: Program, order: Order) -> DriverExecutable:
        """See ``work.Executable``."""
        if self._host_runs:
            return self  # the guards accept these sizes only
        other = copy.copy(self)
        other.program = program
        other.workspace = Workspace(program)
        other.cost = Cost(program.flops)
        other.kept = KeptRecordings(self.device.lock, direct=self.kept.direct)
        other._estimated = set()
        if program.params != self.program.params:
            with translated():
                made = self._with_params(program, order)
            other.parameters = tuple(made.values())
            other._storages = self._storages | made
        self.device.add(other)
        return other

    def _with_params(self, program: Program, order: Order) -> dict[int, Storage]:
        """Memory with a program's parameters, by slot."""
        made = {}
        for number, data in params_of(program).items():
            made[number] = storage = self.device.create_storage(data.nbytes, host_access="write")
            fill(storage, data)
            staged, storage.twin = storage.twin, None
            if staged is not None:
                order.enqueue(Write(storage, None, [staged]))
        return made

    # -- set-up --------------------------------------------------------------------------------
    def set_up(self, order: Order, *after: Work) -> None:
        """See ``work.Executable``."""
        setup, self._setup = self._setup, None
        assert setup is not None, "a graph is set up once"
        setup.queue(self._record_part, self._setup_errors.append, order)
        if self._makes_late:
            with translated():
                self._make_pipelines(self.program.dispatches_of_a_run)
        order.enqueue(*after)

    def setup_error(self) -> Exception | None:
        """See ``work.Executable``."""
        errors = (storage.error for storage in self._storages.values())
        return next((e for e in [*self._setup_errors, *errors] if e is not None), None)

    def contents(self) -> Mapping[int, Storage | np.ndarray]:
        """See ``work.Executable``."""
        contents: dict[int, Storage | np.ndarray] = dict(self._storages)
        for number, slot in enumerate(self.program.slots):
            if slot.kind == "constant" and slot.index in self._host_constants:
                contents[number] = self._host_constants[slot.index]
        copied = {part.target for part in self.program.setup} - contents.keys()
        if copied:
            # Constants for the CPU: no dispatch writes to them, whatever else is in that memory.
            memory = self._host.read()
            for number in copied:
                slot = self.program.slots[number]
                contents[number] = memory[slot.offset : slot.offset + slot.size].copy()
        return contents

    def _record_part(
        self, steps: Iterable[DeviceStep], places: Mapping[int, tuple[Any, int]]
    ) -> Recording:
        """The recording of one part of the set-up; ``places`` are (allocation, offset) of slots
        that only the set-up uses."""

        def bind(place: Range) -> tuple[Any, int, int]:
            if place.slot in places:
                allocation, offset = places[place.slot]
                return allocation, offset + place.offset, place.size
            return self._bind(place, {})

        return self.device.driver.record(self._commands(steps, bind))

    # -- recordings ----------------------------------------------------------------------------
    def recordings(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage], copying: bool = False
    ) -> Recordings:
        """The recordings of each device segment for this set of tensors, from the cache or made
        now: one, and more where it is cut (``_pieces``). ``copying``: with the copies from the
        inputs' twins and to the outputs'."""
        before = from_twins(inputs) if copying else []
        after = to_twins(outputs) if copying else []
        key = key_of(self.program, inputs, outputs, bool(before or after))
        found, seconds = self.kept.get(key), self.cost.seconds
        if found is not None and seconds is not None and key in self._estimated:
            self._estimated.discard(key)
            if len(found) > 1 or seconds > limit_of(self.device.profile):
                found = None  # it is cut otherwise now
        if found is None:
            found = self._record(inputs, outputs, before, after)
            self.kept.keep(key, found)
            if seconds is None:
                self._estimated.add(key)
        return found

    def take_direct(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> DirectRun | None:
        """A run on these storages that its caller may submit (``runtime.direct``), which then
        belongs to the caller; None if it never ran, another caller has it, or it is not a single
        submit."""
        donated = self.program.donated.items()
        if not self.kept.direct or any(inputs[i] is not outputs[o] for i, o in donated):
            return None
        twins = any(s.twin is not None for s in (*inputs.values(), *outputs.values()))
        key = key_of(self.program, inputs, outputs, twins)
        run = self.kept.take_direct(key)
        if run is None and key in self.kept:
            run = background.run_on_worker(self._prepare_direct, key, inputs, outputs)
        return run

    def _prepare_direct(
        self, key: Key, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> DirectRun | None:
        try:
            found = self.recordings(inputs, outputs, copying=True)
            if len(found) == 1:
                return DirectRun(key, self.device.direct.prepare(found))
            self.kept.never_direct()
        except DriverError:
            pass  # the timeline finds it, too
        return None

    def timed_recordings(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage]
    ) -> Recordings:
        """Like ``recordings``, but made for this call and not kept, with timestamps in the
        recordings' own slots: one before the first step, and one after each dispatch and copy."""
        return self._record(inputs, outputs, [], [], timed=True)

    def trim(self) -> None:
        """Free objects that only the next run would use."""
        if self.workspace is not None:
            self.workspace.clear()

    def _record(
        self, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage],
        before: Sequence[Command], after: Sequence[Command], timed: bool = False,
    ) -> Recordings:
        """``before``, ``after``: commands for the begin and the end."""
        tensors = {("input", name): s.backing for name, s in inputs.items()}
        tensors |= {("output", name): s.backing for name, s in outputs.items()}

        def bind(place: Range) -> tuple[Any, int, int]:
            return self._bind(place, tensors)

        parts: Recordings = []
        numbers = [n for n, s in enumerate(self.program.segments) if not isinstance(s, HostSegment)]
        for number, segment in enumerate(self.program.segments):
            if isinstance(segment, HostSegment):
                parts.append(segment)
            elif timed:
                parts.append(self.device.driver.record(self._commands(segment.steps, bind, True)))
            else:
                pieces = self._pieces(
                    segment.steps, bind, before if number == numbers[0] else (),
                    after if number == numbers[-1] else (),
                )
                parts += map(self.device.driver.record, pieces)
        return parts

    def _pieces(
        self, steps: Iterable[DeviceStep], bind: Bind, before: Sequence[Command] = (),
        after: Sequence[Command] = (),
    ) -> Iterator[Sequence[Command]]:
        """The commands of a segment, cut between steps and between the turns of loops where it
        takes long: each piece is a submit of its own, which no watchdog takes for a hang, and lets
        other work pass. ``before``, ``after``: the first and the last commands."""
        commands: list[Command] = [*before, BarrierCommand()] if before else []
        seconds, limit = 0.0, limit_of(self.device.profile)
        pace = 1.0
        if self.cost.seconds is not None:
            pace = self.cost.seconds / max(self._estimate(), 1e-9)
        for step in steps:
            if isinstance(step, RepeatStep):
                turns: Iterable[tuple[Sequence[Command], float]] = self._turns(step, bind)
            else:
                turns = ((self._commands((step,), bind), self._seconds_of(step)),)
            for turn, estimated in turns:
                if commands and seconds + pace * estimated > limit:
                    yield commands
                    commands, seconds = [], 0.0
                commands += turn
                seconds += pace * estimated
        yield [*commands, BarrierCommand(), *after] if after else commands

    def _seconds_of(self, step: DeviceStep) -> float:
        """The estimated seconds of a step outside of loops; 0 where no watchdog runs."""
        if isinstance(step, DispatchStep) and not self.device.profile.is_software:
            return seconds_of(step.flops, step.bytes, self.device.profile)
        return 0.0

    def _estimate(self) -> float:
        """The estimated seconds of a run."""
        return sum(
            times * seconds_of(step.flops, step.bytes, self.device.profile)
            for times, step in executed(self.program.device_steps)
            if isinstance(step, DispatchStep)
        )

    def _bind(
        self, place: Range, tensors: Mapping[tuple[str, str], Any]
    ) -> tuple[Any, int, int]:
        slot = self.program.slots[place.slot]
        if slot.kind in ("input", "output"):
            allocation = tensors[slot.kind, slot.name]
        elif place.slot in self._allocations:
            allocation = self._allocations[place.slot]
        else:
            allocation = self._storages[place.slot].backing
        if slot.kind == "params":
            return allocation, place.offset, place.size  # each such slot has its own memory
        return allocation, slot.offset + place.offset, place.size

    def _commands(
        self, steps: Iterable[DeviceStep], bind: Bind, timed: bool = False
    ) -> Sequence[Command]:
        commands: list[Command] = [TimestampCommand(0)] if timed else []
        stamps = 1
        for step in steps:
            match step:
                case DispatchStep():
                    pipeline = self._pipelines[step.spec, step.constants]
                    bindings = list(map(bind, step.bindings))
                    for index, form in step.spec.texels:
                        bindings[index] = self._viewed(step.bindings[index], bindings[index], form)
                    commands.append(
                        DispatchCommand(pipeline, tuple(bindings), step.push, step.groups)
                    )
                case CopyStep():
                    source, start, size = bind(step.source)
                    target, to, _ = bind(step.target)
                    commands.append(CopyCommand(source, start, target, to, size))
                case RepeatStep():
                    commands += chain.from_iterable(turn for turn, _ in self._turns(step, bind))
                case _:
                    commands.append(BarrierCommand())
                    continue
            if timed:
                commands.append(TimestampCommand(stamps))
                stamps += 1
        return commands

    def _turns(self, step: RepeatStep, bind: Bind) -> Iterator[tuple[Sequence[Command], float]]:
        """The commands of each repetition with the seconds that they take, in parts where there are
        loops inside. They are the first repetition's, except that copies advance by their
        strides."""
        first = [
            [*self._turns(inner, bind)] if isinstance(inner, RepeatStep)
            else self._commands((inner,), bind)
            for inner in step.steps
        ]
        for turn in range(step.count):
            commands: list[Command] = []
            seconds = 0.0
            for inner, made in zip(step.steps, first, strict=True):
                if isinstance(inner, RepeatStep):
                    yield commands, seconds
                    yield from made
                    commands, seconds = [], 0.0
                    continue
                if isinstance(inner, DispatchStep):
                    seconds += seconds_of(inner.flops, inner.bytes, self.device.profile)
                commands += [_advanced(command, inner, turn) for command in made]
            yield commands, seconds

    def _viewed(
        self, place: Range, bound: tuple[Any, int, int], form: str
    ) -> tuple[Any, int, int]:
        """The range that a texel view covers: if the range ends its slot, the view includes the
        padding after it (``room_for``), as far as the allocation goes."""
        allocation, offset, size = bound
        profile, slot = self.device.profile, self.program.slots[place.slot]
        if not profile.compiles_by_size or place.offset + place.size < slot.size:
            return bound  # in the second case the rest of the slot follows it
        largest = min(
            profile.max_storage_buffer_range, TEXEL_BYTES[form] * profile.max_texel_buffer_elements
        )
        room = min(
            room_for(size, profile), room_for(slot.size, profile) - place.offset,
            allocation.size - offset,
        )
        if profile.whole_bindings or not size < room <= largest:
            return bound
        return allocation, offset, room // TEXEL_BYTES[form] * TEXEL_BYTES[form]

    # -- CPU segments --------------------------------------------------------------------------
    def run_host(self, segment: HostSegment, arrays: Arrays) -> None:
        """Compute a CPU segment between two device segments; the device is idle."""
        shared = None if self._host is None else self._host.read()

        def memory(number: int) -> np.ndarray | None:
            slot = self.program.slots[number]
            if slot.kind == "constant":
                return self._host_constants[slot.index]
            if slot.kind == "host":
                return shared[slot.offset : slot.offset + slot.size]
            return None

        self._host_runs[id(segment)](arrays, memory)
        if self._host is not None:
            self._host.flush()


def _advanced(command: Command, step: DeviceStep, turn: int) -> Command:
    """The command in a later repetition of the step that it is made of."""
    if not isinstance(step, CopyStep) or not isinstance(command, CopyCommand):
        return command
    read, written = (turn * stride for stride in step.strides)
    return CopyCommand(
        command.source, command.source_offset + read, command.destination,
        command.destination_offset + written, command.size,
    )

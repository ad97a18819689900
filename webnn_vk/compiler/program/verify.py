"""The invariants of a program, which ensure that no step accesses memory outside of its slots."""

from __future__ import annotations

from webnn_vk.support.integers import padded

from ..ops import ALL_OPERATORS
from .program import (
    KINDS,
    BarrierStep,
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Program,
    Range,
    RepeatStep,
    SetupPart,
    Slot,
)

#: Kinds of slots that a dispatch may not write.
_READ_ONLY = ("input", "constant", "packed", "params")


def verify(program: Program) -> None:
    """Raise ValueError, with the reason, if a program has a reference to a missing item, accesses
    bytes outside of a slot, writes a read-only slot, or does not write an output."""
    _Verifier(program).verify()


def _check(condition: bool, message: str) -> None:
    if not condition:
        raise ValueError(f"program: {message}")


class _Verifier:
    def __init__(self, program: Program) -> None:
        self.program = program
        self.written: set[str] = set()
        self.on_device = any(isinstance(s, DeviceSegment) for s in program.segments) or bool(
            program.setup
        )

    def verify(self) -> None:
        program = self.program
        for number, slot in enumerate(program.slots):
            self._slot(number, slot)
        for number, part in enumerate(program.setup):
            self._part(number, part)
        for segment in program.segments:
            for step in segment.steps:
                self._step(step, isinstance(segment, HostSegment))
        for past, present in program.donated.items():
            same = program.inputs.get(past) == program.outputs.get(present)
            _check(past in program.inputs and same, f"{past!r} is no input like {present!r}")
        taken = list(program.donated.values())
        _check(len(set(taken)) == len(taken), "an output takes over two inputs")
        missing = sorted(set(program.outputs) - self.written)
        _check(not missing, f"nothing writes the outputs {missing}")

    def _slot(self, number: int, slot: Slot) -> None:
        program, what = self.program, f"slot {number} ({slot.kind})"
        _check(slot.kind in KINDS, f"{what} is of an unknown kind")
        _check(slot.size >= 0 and slot.offset >= 0 and slot.index >= 0, f"{what} is negative")
        limit: int | None = None
        match slot.kind:
            case "input" | "output":
                named = program.inputs if slot.kind == "input" else program.outputs
                _check(slot.name in named, f"{what}: no tensor is called {slot.name!r}")
                limit = padded(named[slot.name].byte_length)
            case "constant":
                _check(slot.index < len(program.constants), f"{what}: no constant {slot.index}")
                limit = padded(program.constants[slot.index].byte_length)
            case "packed" | "scratch":
                _check(slot.index < len(program.setup), f"{what}: no set-up part {slot.index}")
                part = program.setup[slot.index]
                if slot.kind == "scratch":
                    limit = part.scratch
                else:
                    _check(part.target == number, f"{what}: part {slot.index} fills another slot")
            case "arena":
                _check(slot.index < len(program.arenas), f"{what}: no arena {slot.index}")
                limit = program.arenas[slot.index]
            case "host":
                limit = program.host_size
            case "params":
                limit = len(program.params)
        fits = limit is None or slot.offset + slot.size <= limit
        _check(fits, f"{what} leaves its {limit} bytes")

    def _part(self, number: int, part: SetupPart) -> None:
        what = f"set-up part {number}"
        target = self._slot_of(part.target, what)
        _check(target.kind in ("packed", "host"), f"{what} fills a slot of kind {target.kind}")
        _check(
            target.kind == "host" or target.index == number, f"{what} fills another part's slot"
        )
        _check(0 <= part.constant < len(self.program.constants), f"{what} packs no constant")
        for step in part.steps:
            self._device_step(step, what)
            _check(not isinstance(step, RepeatStep), f"{what} has repeated steps")
            if isinstance(step, BarrierStep):
                continue
            for place, _, write in step.accesses():
                slot = self.program.slots[place.slot]
                own = (
                    place.slot == part.target
                    or (slot.kind == "scratch" and slot.index == number)
                    or (slot.kind == "constant" and slot.index == part.constant and not write)
                )
                _check(own, f"{what} uses slot {place.slot}, which is not its own")

    def _step(self, step: object, on_host: bool) -> None:
        match step:
            case CpuStep():
                _check(on_host, f"{step.operator} is among the steps of the device")
                self._cpu_step(step)
                return
            case CopyStep() if on_host:
                _check(not self.on_device, "a copy is among CPU steps")
        _check(not on_host or isinstance(step, CopyStep), "a dispatch is among CPU steps")
        self._device_step(step, "a step")
        if isinstance(step, (DispatchStep, CopyStep, RepeatStep)):
            for place, _, write in step.accesses():
                slot = self.program.slots[place.slot]
                _check(slot.kind != "scratch", "scratch memory is used outside of the set-up")
                _check(not write or slot.kind not in _READ_ONLY, f"a step writes {slot.kind}")
                if write and slot.kind == "output":
                    self.written.add(slot.name)

    def _device_step(self, step: object, what: str) -> None:
        match step:
            case DispatchStep():
                spec = step.spec
                _check(
                    len(step.bindings) == spec.binding_count,
                    f"{what} binds {len(step.bindings)} ranges, {spec.binding_count} are needed",
                )
                pushed = spec.param_bytes if spec.param_storage == "push" else 0
                _check(len(step.push) == pushed, f"{what} pushes {len(step.push)} bytes")
                ids = tuple(number for number, _ in step.constants)
                _check(ids == tuple(range(len(spec.all_constants))), f"{what}: constants {ids}")
                _check(all(len(data) == 4 for _, data in step.constants), f"{what}: constants")
                _check(
                    len(step.groups) == 3 and all(0 < n < 2**32 for n in step.groups),
                    f"{what}: groups {step.groups}",
                )
                self._origin(step.origin)
                for place in step.bindings:
                    self._range(place, what)
                for binding, format in spec.texels:
                    place = step.bindings[binding]
                    texel = 16 if format.startswith("rgba") else 4
                    _check(
                        place.offset % texel == 0 and place.size % texel == 0,
                        f"{what}: {place} is no range of {format} texels",
                    )
                if spec.param_storage == "buffer":
                    last = step.bindings[-1]
                    kind = self.program.slots[last.slot].kind
                    _check(
                        kind == "params" and last.size == spec.param_bytes,
                        f"{what}: parameters in {kind}",
                    )
            case CopyStep(source, target):
                self._range(source, what)
                self._range(target, what)
                _check(source.size == target.size, f"{what} copies to a range of another size")
            case RepeatStep(count, steps):
                _check(count > 0, f"{what} is repeated {count} times")
                self._origin(step.origin)
                for inner in steps:
                    self._device_step(inner, what)
                for place, _, _ in step.accesses():
                    self._range(place, what)
            case _:
                _check(isinstance(step, BarrierStep), f"{what} is {type(step).__name__}")

    def _cpu_step(self, step: CpuStep) -> None:
        operator = ALL_OPERATORS.get(step.operator)
        _check(operator is not None, f"no operator is called {step.operator!r}")
        assert operator is not None
        self._origin(step.origin)
        names = {p.name for p in operator.arguments}
        _check(set(step.arguments) == names, f"{step.operator} takes the arguments {sorted(names)}")
        for tensor in step.operands.values():
            self._tensor(tensor, step, write=False)
        for tensor in step.results:
            self._tensor(tensor, step, write=True)
        for slot in step.dead:
            self._slot_of(slot, step.operator)
        described = operator.grouped({k: t.descriptor for k, t in step.operands.items()})
        for p in operator.operands:
            given = described[p.name]
            _check(given is not None or p.optional, f"{step.operator} lacks {p.name}")
        count = sum(
            len(given) if isinstance(given, list) else given is not None
            for given in described.values()
        )
        _check(count == len(step.operands), f"{step.operator} takes the operands {[*described]}")
        try:
            inferred = operator.validate(described, step.arguments).outputs
        except Exception as error:
            raise ValueError(f"program: {type(error).__name__}: {error}") from error
        _check(
            inferred == tuple(t.descriptor for t in step.results),
            f"{step.operator} has other results than {[str(t.descriptor) for t in step.results]}",
        )

    def _tensor(self, tensor: CpuTensor, step: CpuStep, *, write: bool) -> None:
        slot = self._slot_of(tensor.slot, step.operator)
        allowed = ("host", "array") if self.on_device else ("output", "array")
        if not write:
            allowed += ("constant",) if self.on_device else ("constant", "input")
        verb = "writes" if write else "reads"
        _check(slot.kind in allowed, f"{step.operator} {verb} a slot of kind {slot.kind}")
        length = tensor.descriptor.byte_length
        _check(length <= slot.size, f"{step.operator} {verb} {length} of {slot.size} bytes")
        if write and slot.kind == "output":
            self.written.add(slot.name)

    def _range(self, place: Range, what: str) -> None:
        slot = self._slot_of(place.slot, what)
        _check(slot.kind != "array", f"{what} uses an array of the CPU")
        _check(
            place.offset >= 0 and place.size > 0 and place.offset + place.size <= slot.size,
            f"{what} leaves slot {place.slot} of {slot.size} bytes: {place}",
        )

    def _slot_of(self, number: int, what: str) -> Slot:
        _check(0 <= number < len(self.program.slots), f"{what} uses slot {number}; there is none")
        return self.program.slots[number]

    def _origin(self, number: int) -> None:
        _check(0 <= number < len(self.program.origins), f"there is no origin {number}")

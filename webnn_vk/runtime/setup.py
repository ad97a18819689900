"""Set-up of a program on a device: constants are uploaded, packed for their kernels, and freed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np

from webnn_vk.compiler.program import Constants, DeviceStep, Program, SetupPart
from webnn_vk.driver.resources import room_for
from webnn_vk.support.integers import padded

from .device import new_storage
from .driver_memory import DriverMemory
from .packed import Form
from .storage import Storage
from .work import Allocate, Order, Run, SetUp, Work, Write

#: Maximum bytes of originals on the device at one time while constants are packed.
GROUP_BYTES = 8 << 20
#: The packing of unpacked elements, among the forms of a constant that graphs share.
DENSE = ""

#: Records a part's steps, with (allocation, offset) of the slots that only the set-up uses.
Record = Callable[[Iterable[DeviceStep], Mapping[int, tuple[Any, int]]], Any]


def params_of(program: Program) -> dict[int, np.ndarray]:
    """The parameters that are in buffers, by slot: flat bytes."""
    return {
        number: np.frombuffer(program.params, np.uint8, slot.size, slot.offset)
        for number, slot in enumerate(program.slots) if slot.kind == "params"
    }


class Setup:
    """The one-time work for a program. ``storages`` (by slot) and ``host_constants`` (by number)
    stay: the executable shares them.

    Memory that every dispatch reads is allocated at once (MemoryError), or by the timeline for
    packed forms. Originals that are only packed pass through the device in groups of
    ``GROUP_BYTES``, each freed before the next is uploaded.
    """

    def __init__(self, device: DriverMemory, program: Program, constants: Constants) -> None:
        self._device, self._program, self._constants = device, program, constants
        self._slot_of = {
            slot.index: n for n, slot in enumerate(program.slots) if slot.kind == "constant"
        }
        self.storages: dict[int, Storage] = {}
        self.host_constants: dict[int, np.ndarray] = {}
        self._params = params_of(program)
        for number, data in self._params.items():
            self.storages[number] = device.create_storage(data.nbytes)
        for number in sorted(program.resident_constants()):
            storage = constants.storage(number)
            # Forms that other graphs may have are looked up once it is known which work comes
            # before.
            if storage is None and not constants.shared(number):
                storage = device.create_storage(program.constants[number].byte_length)
            if storage is not None:
                self.storages[self._slot_of[number]] = storage

    def queue(
        self,
        record: Record,
        failed: Callable[[Exception], Any],
        order: Order,
    ) -> None:
        """Queue the uploads and the packing. From then on only the queued work keeps the constants
        alive, each until it has begun."""
        program, constants = self._program, self._constants
        for number in program.host_constants():
            self.host_constants[number] = constants.read(number)
        with self._device.packed.lock:
            works: list[Work] = []
            for number, data in self._params.items():
                works.append(Write(self.storages[number], data, fresh=True))
            made = [part for part in program.setup if not self._share(part, order)]
            uses = {part.constant for part in made}
            forms: list[Form] = []
            for number in sorted(program.resident_constants()):
                slot = self._slot_of[number]
                if constants.shared(number):
                    found = self._device.packed.find(order, constants.identity(number), DENSE)
                    if found is not None:
                        self.storages[slot] = found
                        continue
                    self.storages[slot], allocation = new_storage(
                        self._device, program.constants[number].byte_length
                    )
                    works += allocation
                    identity = constants.identity(number)
                    forms.append(Form(order, identity, DENSE, self.storages[slot]))
                if constants.storage(number) is None:
                    works.append(Write(self.storages[slot], constants.read(number), fresh=True))
            for group in self._groups(made, uses):
                works += self._pack(group, record, failed)
            for part in made:
                if part.packing:
                    identity = constants.identity(part.constant)
                    forms.append(Form(order, identity, part.packing, self.storages[part.target]))
            for number in range(len(constants)):
                constants.release(number)
            if forms:
                works.append(Run(partial(_filled, forms), lambda error: None))
            order.enqueue(*works)
            for form in forms:
                self._device.packed.add(form)

    def _share(self, part: SetupPart, order: Order) -> bool:
        """Reuse the form that another graph has already packed, if there is one."""
        if not part.packing:
            return False
        identity = self._constants.identity(part.constant)
        storage = self._device.packed.find(order, identity, part.packing)
        if storage is not None:
            self.storages[part.target] = storage
        return storage is not None

    def _is_original(self, number: int) -> bool:
        """Whether a constant is on the device only for the set-up."""
        resident = self._slot_of[number] in self.storages
        return not resident and self._constants.storage(number) is None

    def _groups(
        self, parts: Sequence[SetupPart], uses: Iterable[int]
    ) -> Iterator[list[SetupPart]]:
        """The parts divided into groups whose originals together fit in ``GROUP_BYTES``, unless one
        alone exceeds it; all parts of one constant are in one group."""
        group: list[SetupPart] = []
        size = 0
        for number in sorted(uses):
            length = self._program.constants[number].byte_length if self._is_original(number) else 0
            if group and size + length > GROUP_BYTES:
                yield group
                group, size = [], 0
            group += [part for part in parts if part.constant == number]
            size += length
        if group:
            yield group

    def _pack(
        self, group: Sequence[SetupPart], record: Record, failed: Callable[[Exception], Any]
    ) -> Iterator[Work]:
        constants = dict.fromkeys(part.constant for part in group)
        originals = [number for number in constants if self._is_original(number)]
        passing = _Passing(self._device, self._program, group, originals)
        # Memory for this group is available only when all groups before are over.
        yield from map(Allocate, passing.storages)
        for number in originals:
            data = self._constants.read(number)
            storage, offset = passing.originals[number]
            yield Write(storage, data, part=(offset, len(data)), fresh=True)

        for part in group:
            target = self._program.slots[part.target]
            writes = []
            if target.kind == "packed":
                storage, works = new_storage(self._device, target.size)
                yield from works
                self.storages[part.target] = storage
                writes.append(storage)
            slot = self._slot_of[part.constant]
            source = self.storages.get(slot) or self._constants.storage(part.constant)
            reads = [*passing.storages, *([] if source is None else [source])]

            def place(
                part: SetupPart = part, slot: int = slot, source: Storage | None = source
            ) -> Any:
                places = {
                    number: (storage.backing, offset)
                    for number, (storage, offset) in passing.scratch(part).items()
                }
                if source is not None:
                    places[slot] = source.backing, 0
                else:
                    storage, offset = passing.originals[part.constant]
                    places[slot] = storage.backing, offset
                return record(part.steps, places)

            yield SetUp(place, reads, writes, failed)
        for storage in passing.storages:
            yield Run(storage.release, lambda _, storage=storage: storage.release())


class _Passing:
    """The memory of one group of set-up parts, released at its end: the originals that pass through
    the device, and the parts' scratch memory. One storage for all of it; on a driver that binds
    whole allocations, one for each.

    ``originals``: (storage, offset) by the constant's number. No storage has its memory yet.
    """

    def __init__(
        self,
        device: DriverMemory,
        program: Program,
        group: Sequence[SetupPart],
        originals: Iterable[int],
    ) -> None:
        self._slots = program.slots
        self.storages: list[Storage] = []
        self.originals: dict[int, tuple[Storage, int]] = {}
        self._scratch: dict[int, tuple[Storage, int]] = {}
        sizes = {number: padded(program.constants[number].byte_length) for number in originals}
        scratch = [number for part in group for number in self._scratch_slots(part)]
        if device.profile.whole_bindings:
            for number, size in sizes.items():
                self.originals[number] = self._add(device, size), 0
            for number in scratch:
                self._scratch[number] = self._add(device, program.slots[number].size), 0
            return
        offsets: dict[int, int] = {}
        end = 0
        for number, size in sizes.items():
            offsets[number] = end
            end += room_for(size, device.profile)
        total = end + max(part.scratch for part in group)
        if total:
            storage = self._add(device, total)
            self.originals = {number: (storage, offset) for number, offset in offsets.items()}
            # Parts run one after the other: all use the same scratch memory.
            self._scratch = {n: (storage, end + program.slots[n].offset) for n in scratch}

    def scratch(self, part: SetupPart) -> dict[int, tuple[Storage, int]]:
        """(storage, offset) of a part's scratch slots."""
        return {number: self._scratch[number] for number in self._scratch_slots(part)}

    def _scratch_slots(self, part: SetupPart) -> list[int]:
        index = self._slots[part.target].index
        return [
            number
            for number, slot in enumerate(self._slots if part.scratch else ())
            if slot.kind == "scratch" and slot.index == index
        ]

    def _add(self, device: DriverMemory, size: int) -> Storage:
        self.storages.append(device.promise_storage(size))
        return self.storages[-1]



def _filled(forms: Sequence[Form]) -> None:
    for form in forms:
        form.filled = True

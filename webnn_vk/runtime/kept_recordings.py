"""The recorded command buffers that a graph keeps, by the sets of tensors that they refer to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from threading import Lock

from webnn_vk.compiler.program import HostSegment, Program
from webnn_vk.driver import Recording

from .direct import DirectRun
from .storage import Storage

#: Sets of tensors for which a graph keeps recordings.
MAX_RECORDINGS = 64

Recordings = list[Recording | HostSegment]
#: The serials of the inputs' and the outputs' storages.
Key = tuple[int, ...]
# The end of the key of recordings that also copy from and to twins.
_WITH_COPIES = -1


def key_of(
    program: Program, inputs: Mapping[str, Storage], outputs: Mapping[str, Storage], copying: bool
) -> Key:
    """The key of a program's recordings for tensors; ``copying``: of those with copies from the
    inputs' twins and to the outputs'."""
    key = [inputs[name].serial for name in program.inputs]
    key += [outputs[name].serial for name in program.outputs]
    return (*key, _WITH_COPIES) if copying else tuple(key)


class KeptRecordings:
    """The ``MAX_RECORDINGS`` that were used last, with runs that callers may submit themselves
    (``runtime.direct``). lock: the device's; ``forget`` is called with it."""

    def __init__(self, lock: Lock, direct: bool) -> None:
        self._lock = lock
        self._found: OrderedDict[Key, Recordings] = OrderedDict()
        # Keys by the tensors in them.
        self._keys: dict[int, set[Key]] = {}
        # Changed in single steps, by any thread. None: no run of this program is a single submit.
        self._direct: dict[Key, DirectRun] | None = {} if direct else None

    def __len__(self) -> int:
        return len(self._found)

    def __contains__(self, key: Key) -> bool:
        return key in self._found

    def get(self, key: Key) -> Recordings | None:
        """The recordings for a set of tensors, if there are any."""
        with self._lock:
            found = self._found.get(key)
            if found is not None:
                self._found.move_to_end(key)
            return found

    def keep(self, key: Key, recordings: Recordings) -> None:
        """Keep them for the next time."""
        with self._lock:
            self._found[key] = recordings
            for serial in key:
                self._keys.setdefault(serial, set()).add(key)
            if len(self._found) > MAX_RECORDINGS:
                self._drop(next(iter(self._found)))

    def forget(self, serial: int) -> None:
        """Free those that refer to a freed tensor (lock held)."""
        for key in list(self._keys.get(serial, ())):
            self._drop(key)
        for key in list(self._direct or ()):
            if serial in key:
                self._drop_direct(key)

    # -- direct runs, without the lock -----------------------------------------------------------
    @property
    def direct(self) -> bool:
        """Whether runs of this program may be direct."""
        return self._direct is not None

    def take_direct(self, key: Key) -> DirectRun | None:
        """The run for a set of tensors, which belongs to the caller then; None if there is none, or
        another caller has it."""
        return None if self._direct is None else self._direct.pop(key, None)

    def keep_direct(self, run: DirectRun) -> None:
        """Leaves it for the next run on the same tensors."""
        if self._direct is not None:
            self._direct[run.key] = run

    def never_direct(self) -> None:
        """A run of this program is more than one submit."""
        self._direct = None

    def _drop(self, key: Key) -> None:
        for serial in key:
            keys = self._keys.get(serial)
            if keys is not None:
                keys.discard(key)
                if not keys:
                    del self._keys[serial]
        # Freed with the last reference, which the submission being assembled may hold.
        del self._found[key]
        self._drop_direct(key)

    def _drop_direct(self, key: Key) -> None:
        if self._direct is not None:
            self._direct.pop(key, None)

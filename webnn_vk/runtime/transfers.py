"""Transfers of tensors that the host writes or reads again and again: their memory and their
recordings are kept from one to the next."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from webnn_vk.driver import Recording

#: Copying more bytes takes longer than finding memory for them and recording.
KEPT_BYTES = 1 << 16
#: How many transfers are kept or remembered.
MAX_KEPT = 64

#: The serial number of a storage, and the kind of transfer: "upload" or "download".
Key = tuple[int, str]


class Transfer:
    """Memory for transfers and the recording of the copy from or to it; ``submit`` is what direct
    work submits (``runtime.direct``), ``last`` the value of its last submission."""

    __slots__ = ("last", "recording", "staged", "submit")

    def __init__(self, staged: Any, recording: Recording) -> None:
        self.staged, self.recording = staged, recording
        self.submit: Any = None
        self.last = 0


class Transfers:
    """The transfers of one device that no work uses. The first one of a tensor is only remembered:
    transfers that come once share a recording with others. Each change is one step into C, so that
    any thread may make it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Key, Transfer | None] = OrderedDict()

    def take(
        self, key: Key, completed: Callable[[], int], make: Callable[[], Transfer]
    ) -> Transfer | None:
        """The kept transfer or, if one is remembered, a new one, which then belongs to the caller;
        None if there was none, or it is in use. ``completed``: the last submission that is over."""
        if key not in self._kept:
            return None
        transfer = self._kept.pop(key, None) or make()
        return transfer if not transfer.last or transfer.last <= completed() else None

    def take_kept(self, key: Key) -> Transfer | None:
        """The kept transfer, which then belongs to the caller; None if there is none."""
        return self._kept.pop(key, None) if self._kept.get(key) is not None else None

    def keep(self, key: Key, transfer: Transfer | None) -> None:
        """Leaves a transfer for the next time, as no work uses it any more; None only remembers
        it."""
        if transfer is None:
            self._kept.setdefault(key, None)
        else:
            self._kept[key] = transfer
        if len(self._kept) > MAX_KEPT:
            try:
                self._kept.popitem(last=False)
            except KeyError:
                pass  # cleared meanwhile

    def forget(self, serial: int) -> None:
        """The storage is gone."""
        for kind in ("upload", "download"):
            self._kept.pop((serial, kind), None)

    def clear(self) -> None:
        """Let go of all memory and recordings."""
        self._kept.clear()

"""Constants in the layouts that kernels need, shared by the graphs of one device."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import Any

from webnn_vk.support.dataclass import dataclass

from .storage import Storage


@dataclass(frozen=True)
class _Entry:
    identity: Callable[[], Any]
    storage: weakref.ref[Storage]


class PackedForms:
    """Storages by constant and packing, for as long as a graph uses them.

    They are shared within one order of work (the one that set-ups are queued on). ``lock`` is held
    from looking a form up until the work that fills a new one is queued. A caller that finds a form
    may therefore queue work that reads it.
    """

    def __init__(self) -> None:
        # Reentrant: a failing queue calls back.
        self.lock = threading.RLock()
        self._orders: weakref.WeakKeyDictionary[Any, dict[tuple[Any, str], _Entry]] = (
            weakref.WeakKeyDictionary()
        )

    def find(self, order: Any, identity: Any, packing: str) -> Storage | None:
        """The packed form of a constant (see ``Constants.identity``), unless it failed."""
        entry = self._orders.get(order, {}).get((_key(identity), packing))
        if entry is None:
            return None
        # The identity of a collected object may be reused by another by now.
        same = entry.identity()
        storage = entry.storage()
        if storage is None or storage.error is not None:
            return None
        return storage if same is identity or _by_value(identity) else None

    def add(self, order: Any, identity: Any, packing: str, storage: Storage) -> None:
        """Offer a packed form to later graphs, once the work that fills it is queued."""
        entries = self._orders.setdefault(order, {})
        for key, entry in list(entries.items()):
            if entry.storage() is None:
                del entries[key]
        known = (lambda: identity) if _by_value(identity) else weakref.ref(identity)
        entries[_key(identity), packing] = _Entry(known, weakref.ref(storage))


def _by_value(identity: Any) -> bool:
    return type(identity).__hash__ is not None and type(identity).__eq__ is not object.__eq__


def _key(identity: Any) -> Any:
    return identity if _by_value(identity) else id(identity)

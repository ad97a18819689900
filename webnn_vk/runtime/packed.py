"""Constants in the layouts that kernels need, shared by the graphs of one device."""

from __future__ import annotations

import threading
import weakref
from typing import Any

from .storage import Storage


class Form:
    """A storage that holds a constant in some packing, once the work that fills it has run:
    ``filled``. Until then only its own order of work may use it."""

    def __init__(self, order: Any, identity: Any, packing: str, storage: Storage) -> None:
        self.key = _key(identity), packing
        # The identity of a collected object may be reused by another.
        self._identity = (lambda: identity) if _by_value(identity) else weakref.ref(identity)
        self._order, self.storage = weakref.ref(order), weakref.ref(storage)
        self.filled = False

    def in_use(self) -> bool:
        """Whether a graph may ask for it and has it."""
        return self.storage() is not None and self._identity() is not None

    def usable(self, order: Any, identity: Any) -> Storage | None:
        """The storage, if work of this order may read it for this constant."""
        storage, same = self.storage(), self._identity()
        if storage is None or storage.error is not None:
            return None
        if not self.filled and self._order() is not order:
            return None
        return storage if same is identity or _by_value(identity) else None


class PackedForms:
    """Storages by constant and packing, for as long as a graph uses them.

    All contexts of the device share them: at once within one order of work (the one that set-ups
    are queued on), and with others when they are filled. ``lock`` is held from looking a form up
    until the work that fills a new one is queued. A caller that finds a form may therefore queue
    work that reads it.
    """

    def __init__(self) -> None:
        # Reentrant: a failing queue calls back.
        self.lock = threading.RLock()
        self._forms: dict[tuple[Any, str], list[Form]] = {}

    def find(self, order: Any, identity: Any, packing: str) -> Storage | None:
        """The packed form of a constant (see ``Constants.identity``), unless it failed."""
        forms = self._forms.get((_key(identity), packing), ())
        found = (form.usable(order, identity) for form in forms)
        return next((storage for storage in found if storage is not None), None)

    def add(self, form: Form) -> None:
        """Offer a packed form to later graphs, once the work that fills it is queued."""
        for key, forms in list(self._forms.items()):
            forms[:] = [known for known in forms if known.in_use()]
            if not forms:
                del self._forms[key]
        self._forms.setdefault(form.key, []).append(form)


def _by_value(identity: Any) -> bool:
    return type(identity).__hash__ is not None and type(identity).__eq__ is not object.__eq__


def _key(identity: Any) -> Any:
    return identity if _by_value(identity) else id(identity)

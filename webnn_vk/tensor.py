"""MLTensor: device-resident data of a context (§8.8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from .data_types import MLTensorDescriptor
from .errors import DestroyedTensorError, InvalidStateError

if TYPE_CHECKING:
    from .context import MLContext
    from .promise import MLPromise
    from .runtime import Storage


class MLTensor:
    """Input or output of dispatches; made by ``context.create_tensor`` or
    ``create_constant_tensor``. Its memory is given back when it is destroyed or collected and no
    work uses it any more."""

    def __init__(
        self,
        context: MLContext,
        descriptor: MLTensorDescriptor,
        storage: Storage,
        *,
        constant: bool = False,
    ) -> None:
        self._context = context
        self._descriptor = descriptor
        self._storage: Storage | None = storage
        self._constant = constant
        self._pending: set[MLPromise] = set()
        # What holds the tensor exclusively at present (an exported buffer, a view), if anything.
        self._rental: object | None = None
        self._lock = threading.Lock()

    data_type = property(lambda self: self._descriptor.data_type, doc="The data type's name.")
    shape = property(lambda self: self._descriptor.shape, doc="Dimensions in elements.")
    readable = property(lambda self: self._descriptor.readable, doc="Whether it can be read.")
    writable = property(lambda self: self._descriptor.writable, doc="Whether it can be written.")
    constant = property(lambda self: self._constant, doc="Whether it is a constant tensor.")

    def destroy(self) -> None:
        """Release the tensor (§8.8.2). Pending reads are rejected with InvalidStateError; work
        queued before goes on. Calling it again does nothing."""
        with self._lock:
            self._storage = None
            pending, self._pending = self._pending, set()
        for promise in pending:
            promise.reject(InvalidStateError("the tensor was destroyed before it was read"))

    def _use(self, what: str) -> Storage:
        """The tensor's memory; DestroyedTensorError, or TypeError while someone else holds it."""
        storage = self._storage
        if storage is None:
            raise DestroyedTensorError(f"{what}: the tensor {self._descriptor} was destroyed")
        if self._rental is not None:
            raise TypeError(
                f"{what}: the tensor {self._descriptor} is held by {self._rental!r}; "
                "release that first"
            )
        return storage

    def __enter__(self) -> MLTensor:
        return self

    def __exit__(self, *_: object) -> None:
        self.destroy()

    def __repr__(self) -> str:
        flags = [f for f in ("readable", "writable", "constant") if getattr(self, f)]
        state = " destroyed" if self._storage is None else ""
        return f"<MLTensor {self._descriptor} {' '.join(flags)}{state}>"

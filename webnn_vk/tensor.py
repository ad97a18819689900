"""MLTensor: device-resident data of a context (§8.8)."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from .data_types import MLTensorDescriptor
from .errors import DestroyedTensorError, InvalidStateError
from .interop import dlpack
from .interop.numpy import TensorArray, view
from .sharing import Exchange, TensorMemory, export_fd

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
        exchange: Exchange | None = None,
    ) -> None:
        self._context = context
        self._descriptor = descriptor
        self._storage: Storage | None = storage
        self._constant = constant
        # How its memory goes to a GPUDevice; None when it is not exportable.
        self._exchange = exchange
        self._pending: set[MLPromise] = set()
        # What holds the tensor exclusively at present (an exported buffer, a view), if anything.
        self._rental: object | None = None
        self._lock = threading.Lock()

    @property
    def data_type(self) -> str:
        """The data type's name."""
        return self._descriptor.data_type

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements."""
        return self._descriptor.shape

    @property
    def readable(self) -> bool:
        """Whether ``read_tensor`` can read it."""
        return self._descriptor.readable

    @property
    def writable(self) -> bool:
        """Whether ``write_tensor`` can write it."""
        return self._descriptor.writable

    @property
    def constant(self) -> bool:
        """Whether it is a constant tensor, for ``builder.constant``."""
        return self._constant

    @property
    def importable_to_web_gpu(self) -> bool:
        """Whether ``export_to_gpu`` can lend it to a GPUDevice (extension)."""
        return self._exchange is not None and self._exchange.gpu_device is not None

    def export_fd(self) -> TensorMemory:
        """The memory of an exportable tensor as an opaque file descriptor, which is the caller's
        (extension): for CUDA, another Vulkan device, another process.

        Whoever imports it works on the tensor's own bytes, also after the tensor was destroyed.
        The order is the caller's affair: ``context.fence().wait()`` before the other side reads,
        the other side's own wait before the next call with the tensor. TypeError when the tensor is
        not exportable or held by someone, InvalidStateError when it was destroyed,
        NotSupportedError where the device has no VK_KHR_external_memory_fd."""
        return export_fd(self)

    def to_numpy(self) -> TensorArray:
        """The tensor's contents as an array, once all work queued so far is done (extension).

        A view of the tensor's own memory where the host sees it (the CPU device, lavapipe,
        integrated GPUs), else of a staged copy that goes back on release. Read-only unless the
        tensor is ``writable``. Until the array is released (``with tensor.to_numpy() as array:``,
        ``array.release()``, or when it and all its views are gone) the tensor is the array's:
        write, read and dispatch with it are a TypeError. TypeError when the tensor is not
        ``readable`` or someone holds it, InvalidStateError when it was destroyed, and the error of
        the dispatch that should have written it."""
        return view(self)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack device type and number: kDLCPU where the host sees the memory, else kDLVulkan."""
        return dlpack.device_of(self)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over the view that ``to_numpy`` gives, which holds the tensor until its
        consumer lets go of it; of a copy with ``copy=True``. BufferError for what can't be: a copy
        that was forbidden, another device, Vulkan memory unless ``dl_device`` asks for the CPU."""
        return dlpack.export(self, stream, max_version, dl_device, copy)

    def destroy(self) -> None:
        """Release the tensor (§8.8.2). Pending reads are rejected with InvalidStateError; work
        queued before goes on. Calling it again does nothing."""
        self._context._timeline.check_fork()
        with self._lock:
            self._storage = self._rental = None  # a buffer that is out is its owner's alone
            pending, self._pending = self._pending, set()
        if self._exchange is not None:
            self._exchange.release(self)
        for promise in pending:
            promise.reject(InvalidStateError("the tensor was destroyed before it was read"))

    def _use(self, what: str) -> Storage:
        """The tensor's memory; DestroyedTensorError, or TypeError while someone else holds it."""
        storage = self._storage_of(what)
        if self._rental is not None:
            raise TypeError(
                f"{what}: the tensor {self._descriptor} is held by {self._rental!r}; "
                "release that first"
            )
        return storage

    def _storage_of(self, what: str) -> Storage:
        """The tensor's memory, whoever holds it; DestroyedTensorError."""
        storage = self._storage
        if storage is None:
            raise DestroyedTensorError(f"{what}: the tensor {self._descriptor} was destroyed")
        return storage

    def _rent(self, holder: object, what: str) -> Storage:
        """The tensor's memory for ``holder`` alone, until ``_end_rental``; raises as ``_use``."""
        # Behind calls that have found the tensor free and are about to queue their work.
        with self._context._order, self._lock:
            storage = self._use(what)
            self._rental = holder
        return storage

    def _end_rental(self, holder: object) -> None:
        # No lock: this may run in a destructor.
        if self._rental is holder:
            self._rental = None

    def __enter__(self) -> MLTensor:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._context._timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        flags = [f for f in ("readable", "writable", "constant") if getattr(self, f)]
        flags += ["exportable"] * (self._exchange is not None)
        flags += ["destroyed"] * (self._storage is None)
        return f"<{' '.join(['MLTensor', str(self._descriptor), *flags])}>"

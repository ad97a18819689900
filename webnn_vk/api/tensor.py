"""MLTensor: device-resident data of a context (§8.8)."""

from __future__ import annotations

from typing import Any

import numpy as np

from webnn_vk.compiler.types.data_types import MLTensorDescriptor
from webnn_vk.runtime.tensor_state import TensorBase, TensorState
from webnn_vk.support import background
from webnn_vk.support.mixins import AsyncManager, OneOfAKind, PublicDir, html_table

from .interop import dlpack
from .interop.numpy import TensorArray, view
from .tensor_export import TensorMemory, export_fd


class MLTensor(PublicDir, OneOfAKind, TensorBase, AsyncManager):
    """An input or output of dispatches, made by ``context.create_tensor`` or
    ``create_constant_tensor``. Its memory is freed once the tensor is destroyed or collected and no
    work uses it."""

    def __init__(self, state: TensorState) -> None:
        self._state = state

    @property
    def _descriptor(self) -> MLTensorDescriptor:
        return self._state.descriptor

    @property
    def data_type(self) -> str:
        """The data type's name."""
        return self._descriptor.data_type

    @property
    def shape(self) -> tuple[int, ...]:
        """Dimensions in elements."""
        return self._descriptor.shape

    @property
    def ndim(self) -> int:
        """Number of dimensions (extension)."""
        return self._descriptor.rank

    @property
    def dtype(self) -> np.dtype:
        """The data type as a NumPy dtype (extension)."""
        return self._descriptor.numpy_dtype

    @property
    def nbytes(self) -> int:
        """Packed length of the contents in bytes (extension)."""
        return self._descriptor.byte_length

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
        return self._state.constant

    @property
    def importable_to_web_gpu(self) -> bool:
        """Whether ``export_to_gpu`` can lend it to a GPUDevice (extension)."""
        external = self._state.external
        return external is not None and external.gpu_device is not None

    def export_fd(self) -> TensorMemory:
        """The memory of an exportable tensor as an opaque file descriptor that the caller owns, for
        CUDA, another Vulkan device or another process (extension). Returns at once.

        The importer works on the tensor's own bytes, also after the tensor is destroyed. The caller
        orders the work: ``context.fence().wait()`` before the other side reads, and the other
        side's wait before the next call with the tensor. Raises TypeError when the tensor is not
        exportable or is lent already, InvalidStateError when it was destroyed, NotSupportedError
        without VK_KHR_external_memory_fd."""
        return background.run_on_worker(export_fd, self._state)

    def to_numpy(self) -> TensorArray:
        """The tensor's contents as an array (extension); waits until all work queued so far is
        done.

        The array is a view of the tensor's own memory where the host can access it (the CPU device,
        lavapipe, integrated GPUs), otherwise of a staged copy that is written back on release. It
        is read-only unless the tensor is ``writable``. The tensor is lent to the array until the
        array is released: by ``with tensor.to_numpy() as array:``, by ``array.release()``, or when
        the array and all its views are gone. Until then, writing, reading and dispatching with the
        tensor raise TypeError. Raises TypeError when the tensor is not ``readable`` or is lent
        already, InvalidStateError when it was destroyed, and the error of the dispatch that should
        have written it."""
        return background.run_on_worker(view, self._state)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        """A copy of the contents for ``np.asarray(tensor)`` (extension). Waits for all earlier
        work. Raises TypeError when the tensor is not ``readable`` or is lent, InvalidStateError
        when it was destroyed, and the error of the dispatch that should have written it."""
        if copy is False:
            raise ValueError("an array of a tensor is a copy; to_numpy() gives a view")
        self._state.context.check()
        self._state.check_readable("np.asarray")
        array = self._state.read("np.asarray").result()
        return array if dtype is None else array.astype(dtype, copy=False)

    def __dlpack_device__(self) -> tuple[int, int]:
        """DLPack device type and number: kDLCPU where the host can access the memory, else
        kDLVulkan."""
        return dlpack.device_of(self._state)

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """A DLPack capsule over the view that ``to_numpy`` returns, or over a copy with
        ``copy=True``. The view holds the tensor until the consumer releases it. Raises BufferError
        when a copy is needed but forbidden, for another device, and for Vulkan memory unless
        ``dl_device`` asks for the CPU."""
        return background.run_on_worker(
            dlpack.export, self._state, stream, max_version, dl_device, copy
        )

    def destroy(self) -> None:
        """Release the tensor (§8.8.2), at once. Pending reads reject with InvalidStateError; other
        queued work completes. A second call does nothing."""
        self._state.destroy()

    def __enter__(self) -> MLTensor:
        return self

    def __exit__(self, *_: object) -> None:
        if not self._state.context.timeline.forked:
            self.destroy()

    def __repr__(self) -> str:
        return repr(self._state)

    def _repr_html_(self) -> str:
        flags = repr(self).strip("<>").split("] ", 1)[1:]
        return html_table(
            [
                ("data type", self.data_type),
                ("shape", list(self.shape)),
                ("bytes", self.nbytes),
                ("device", self._state.context.info.name),
                ("", *flags),
            ][: 4 + bool(flags)],
            caption="MLTensor",
        )

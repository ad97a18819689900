"""Kompute's tensors as allocations: each is Vulkan memory of its own."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any
from weakref import KeyedRef

import numpy as np

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.errors import OutOfDeviceMemory
from webnn_vk.driver.kompute.binding import KomputeError, words_of
from webnn_vk.driver.kompute.profile import keeps_on_host
from webnn_vk.driver.resources import Allocation, MemoryUse

#: Sizes are rounded up to a multiple of this, in bytes, as other drivers align allocations.
ALIGNMENT = 256


class Buffer:
    """Memory that allocations and recordings share: a tensor (`tensor`), or host memory (None).
    `words` is the host's view: the memory itself, or the tensor's staging twin.

    stale: the twin is older than the tensor; set by the worker thread.
    """

    __slots__ = ("__weakref__", "size", "stale", "tensor", "twin", "words")

    def __init__(self, size: int, tensor: Any, words: np.ndarray, *, twin: bool) -> None:
        self.size, self.tensor, self.words, self.twin = size, tensor, words, twin
        self.stale = False

    @property
    def bytes(self) -> np.ndarray:
        """The host's view as bytes."""
        return self.words.view(np.uint8)


class Hold:
    """An allocation's reference to its buffer: dropped when the allocation is freed or collected,
    even if others still use the buffer."""

    __slots__ = ("__weakref__", "buffer")

    def __init__(self, buffer: Buffer) -> None:
        self.buffer = buffer


class KomputeAllocation(Allocation):
    """A tensor, or memory of the host. `held`: a Hold. Kompute's memory is coherent."""

    __slots__ = ()

    def __init__(self, buffer: Buffer, label: str) -> None:
        mapped = None if buffer.twin else memoryview(buffer.bytes)
        super().__init__(Hold(buffer), buffer.size, mapped, label)
class Memory:
    """Allocates tensors within the heap's size, which Kompute doesn't check. Thread-safe."""

    def __init__(self, kp: Any, manager: Any, profile: DeviceProfile) -> None:
        self._kp, self._manager, self._profile = kp, manager, profile
        self._on_host = keeps_on_host(profile)
        self._lock = threading.Lock()
        # References to the buffers, with their bytes in the heap and their size.
        self._live: set[KeyedRef[tuple[int, int], Buffer]] = set()
        # Those whose buffers were collected, added by one call into C, which a signal handler
        # can't interrupt as it could a destructor.
        self._returned: deque[KeyedRef[tuple[int, int], Buffer]] = deque()
        self._allocated = self._in_heap = self._tensors = 0

    def allocate(self, size: int, *, host: bool, label: str) -> KomputeAllocation:
        """`size` bytes (at least 1); `host`: plain memory, no dispatch binds it. Raises
        OutOfDeviceMemory."""
        rounded = -(-max(size, 1) // ALIGNMENT) * ALIGNMENT
        if host:
            try:
                words = np.zeros(rounded // 4, np.uint32)
            except MemoryError as error:
                raise OutOfDeviceMemory(f"no memory on the host for {rounded} bytes",
                                        requested=rounded) from error
            with self._lock:
                return self._made(Buffer(rounded, None, words, twin=False), 0, label)
        heap = rounded if self._on_host else 2 * rounded
        with self._lock:
            self._check(rounded, heap, label)
            kind = self._kp.TensorTypes.host if self._on_host else self._kp.TensorTypes.device
            try:
                tensor = self._manager.tensor_t(np.zeros(rounded // 4, np.uint32), kind)
            except (RuntimeError, MemoryError) as error:
                raise OutOfDeviceMemory(f"Kompute makes no tensor of {rounded} bytes: {error}",
                                        requested=rounded, in_use=self._in_heap) from error
            if not tensor.is_init():
                raise KomputeError(f"Kompute made a tensor of {rounded} bytes without memory")
            buffer = Buffer(rounded, tensor, words_of(tensor), twin=not self._on_host)
            self._tensors += 1
            return self._made(buffer, heap, label)

    def use(self) -> MemoryUse:
        """The current use. Tensors count once in `allocated`, with their staging twins in
        `reserved`."""
        with self._lock:
            self._take_back()
            return MemoryUse(self._allocated, self._in_heap + self._on_host_bytes(),
                             len(self._live), len(self._live))

    def close(self) -> None:
        """Releases every tensor; nothing uses their memory from then on."""
        with self._lock:
            for watch in list(self._live):
                buffer = watch()
                if buffer is not None:
                    # Later readers of its bytes get this instead of freed memory.
                    buffer.words = np.zeros(0, np.uint32)
                    buffer.tensor = None
            self._live.clear()
            self._returned.clear()
            self._allocated = self._in_heap = self._tensors = 0

    def held(self) -> list[Any]:
        """The living buffers."""
        return [buffer for watch in self._live.copy() if (buffer := watch()) is not None]

    # -- with the lock held -------------------------------------------------------------------
    def _on_host_bytes(self) -> int:
        return sum(size for heap, size in (watch.key for watch in self._live) if not heap)

    def _check(self, size: int, heap: int, label: str) -> None:
        profile = self._profile
        self._take_back()
        what = f"{profile.name} through Kompute: {label or 'memory'} of {size} bytes"
        limit = profile.local_heap_size
        if size > profile.max_buffer_size:
            raise OutOfDeviceMemory(f"{what} exceeds a tensor's {profile.max_buffer_size}",
                                    requested=size, in_use=self._in_heap, limit=limit)
        if self._in_heap + heap > limit:
            raise OutOfDeviceMemory(f"{what} exceeds the heap of {limit}, {self._in_heap} in use",
                                    requested=size, in_use=self._in_heap, limit=limit)
        if self._tensors >= profile.max_memory_allocation_count:
            raise OutOfDeviceMemory(
                f"{what} would be tensor {self._tensors + 1}; the device has at most "
                f"{profile.max_memory_allocation_count}", requested=size, in_use=self._in_heap,
                limit=limit)

    def _made(self, buffer: Buffer, heap: int, label: str) -> KomputeAllocation:
        self._take_back()
        self._live.add(KeyedRef(buffer, self._returned.append, (heap, buffer.size)))
        self._allocated += buffer.size
        self._in_heap += heap
        return KomputeAllocation(buffer, label)

    def _take_back(self) -> None:
        while self._returned:
            watch = self._returned.popleft()
            if watch in self._live:
                self._live.discard(watch)
                heap, size = watch.key
                self._allocated -= size
                self._in_heap -= heap
                self._tensors -= heap > 0

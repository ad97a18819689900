"""Sub-allocation: a few large blocks of device memory, each under one buffer, cut into allocations.

Best fit over coalescing free ranges. The heaps' sizes are enforced here, because some drivers
over-commit; they count for all drivers that the process has opened on a device. Blocks come from
`blocks.BufferBlocks`, which is not imported here, so that tests need no Vulkan.
"""

from __future__ import annotations

import bisect
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any, Literal
from weakref import KeyedRef

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.errors import OutOfDeviceMemory
from webnn_vk.driver.resources import Allocation, HostAccess, MemoryUse
from webnn_vk.support.dataclass import dataclass

if TYPE_CHECKING:
    from webnn_vk.driver.vulkan.blocks import BufferBlocks

MIB = 1 << 20
BLOCK_SIZE = 64 * MIB
MAX_BLOCK_SIZE = 512 * MIB
ALIGNMENT = 256


class HeapUsage:
    """Bytes and blocks taken from each heap of one physical device, by all drivers on it."""

    def __init__(self, heaps: int) -> None:
        self._lock = threading.Lock()
        self._allocators: weakref.WeakSet[Allocator] = weakref.WeakSet()
        self.bytes = [0] * heaps
        self.blocks = 0

    def take(self, heap: int, size: int, limit: int, max_blocks: int) -> bool:
        """Takes `size` bytes when heap and number of blocks stay within their limits."""
        with self._lock:
            if self.bytes[heap] + size > limit or self.blocks >= max_blocks:
                return False
            self.bytes[heap] += size
            self.blocks += 1
            return True

    def join(self, allocator: Allocator) -> None:
        """Adds an allocator that takes from the heaps."""
        with self._lock:
            self._allocators.add(allocator)

    def collect(self) -> bool:
        """Has every allocator free its released ranges, because one ran out of memory. Returns
        whether there were any."""
        with self._lock:
            allocators = list(self._allocators)
        return any([allocator.collect() for allocator in allocators])

    def give(self, heap: int, size: int) -> None:
        """Returns `size` bytes."""
        with self._lock:
            self.bytes[heap] -= size
            self.blocks -= 1


@dataclass(eq=False)
class Block:
    """One piece of device memory with its buffer."""

    native: Any
    size: int
    pool: Pool
    number: int
    dedicated: bool
    #: memory from elsewhere: it is not taken from this device's heaps
    imported: bool = False
    #: start -> size and end -> start of the free ranges
    free_at: dict[int, int] = field(default_factory=dict)
    free_end: dict[int, int] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Whether nothing is allocated in it."""
        return self.free_at.get(0) == self.size


@dataclass(eq=False)
class Pool:
    """The blocks of one memory type."""

    memory_type: int
    heap: int
    visible: bool
    coherent: bool
    cached: bool
    blocks: dict[int, Block] = field(default_factory=dict)
    #: (size, block number, offset) of every free range, sorted: the first that fits fits best
    free: list[tuple[int, int, int]] = field(default_factory=list)


class Range:
    """Bytes of a block, released with the last reference: the allocation and the recordings that
    use it hold one each."""

    __slots__ = ("__weakref__", "allocator", "block", "offset", "size")

    def __init__(self, allocator: Allocator, block: Block, offset: int, size: int) -> None:
        self.allocator, self.block, self.offset, self.size = allocator, block, offset, size


#: Block, offset and size of a range.
_Place = tuple[Block, int, int]


class VulkanAllocation(Allocation):
    """A range of device memory: `buffer` at `offset`, `size` bytes (rounded up). `held`: the Range.
    """

    __slots__ = ("buffer", "cached", "coherent", "offset")

    def __init__(self, held: Range, label: str = "") -> None:
        native, end = held.block.native, held.offset + held.size
        self.buffer, self.offset = native.buffer, held.offset
        self.cached, self.coherent = held.block.pool.cached, held.block.pool.coherent
        mapped = None if native.mapped is None else native.mapped[held.offset : end]
        super().__init__(held, held.size, mapped, label)

    def flush(self) -> None:
        """See `Allocation`. Cheap when coherent."""
        self._synchronise(to_device=True)

    def invalidate(self) -> None:
        """See `Allocation`. Cheap when coherent."""
        self._synchronise(to_device=False)

    def _synchronise(self, *, to_device: bool) -> None:
        held: Range = self.held
        if not held.block.pool.coherent:
            held.allocator.synchronise(held, to_device=to_device)


#: "host": memory for transfers.
_Purpose = Literal["host", "", "write", "read"]


def rank_memory_types(profile: DeviceProfile, type_bits: int, *, host: bool = False,
                      host_access: HostAccess = "") -> list[int]:
    """The usable memory types, best first.

    host: visible to the host, cached before coherent before the rest, outside device memory if
    possible. Otherwise device-local: on a discrete GPU rather not host-visible, else rather so.
    host_access: before these, device-local ones that the host sees ("write"), or those for
    transfers that the host caches ("read").
    """
    if host_access:
        preferred = rank_memory_types(profile, type_bits, host=True)
        wanted = "device_local" if host_access == "write" else "host_cached"
        preferred = [n for n in preferred if wanted in profile.memory_types[n][1]]
        return list(dict.fromkeys([*preferred, *rank_memory_types(profile, type_bits)]))
    shared = profile.device_type in ("cpu", "integrated")
    ranked = []
    for index, (_, names) in enumerate(profile.memory_types):
        if not type_bits >> index & 1 or "lazily_allocated" in names or "protected" in names:
            continue
        visible, cached = "host_visible" in names, "host_cached" in names
        coherent, local = "host_coherent" in names, "device_local" in names
        if host and visible:
            ranked.append(((cached and coherent) * 4 + cached * 2 + coherent - local * 0.5, index))
        elif not host and local:
            convenient = visible + (visible and coherent) + (visible and cached)
            ranked.append((convenient if shared else -convenient, index))
    return [index for _, index in sorted(ranked, key=lambda item: (-item[0], item[1]))]


class Allocator:
    """Allocates from the heaps of one device for one driver. Thread-safe."""

    def __init__(self, profile: DeviceProfile, source: BufferBlocks, type_bits: int,
                 usage: HeapUsage, block_size: int = BLOCK_SIZE) -> None:
        self._profile, self._source, self._usage = profile, source, usage
        self._base = block_size
        self._alignment = max(ALIGNMENT, profile.min_storage_buffer_offset_alignment,
                              profile.non_coherent_atom_size)
        purposes: tuple[_Purpose, ...] = ("", "host", "write", "read")
        types = {
            purpose: rank_memory_types(profile, type_bits, host=True) if purpose == "host"
            else rank_memory_types(profile, type_bits, host_access=purpose)
            for purpose in purposes}
        pools = {}
        for index in {index for ranked in types.values() for index in ranked}:
            heap, names = profile.memory_types[index]
            pools[index] = Pool(index, heap, *(
                name in names for name in ("host_visible", "host_coherent", "host_cached")))
        self._pools = {purpose: [pools[index] for index in ranked]
                       for purpose, ranked in types.items()}
        self._all_pools = list(pools.values())
        self.memory_types = tuple(pools)
        self._largest = min(profile.max_memory_allocation_size, profile.max_buffer_size)
        # Held only for bookkeeping and block creation, never by the main thread; released ranges
        # wait for it in a queue.
        self._lock = threading.Lock()
        self._live: set[KeyedRef[_Place, Range]] = set()
        # References to released ranges, added by one call into C, which a signal handler can't
        # interrupt as it could a destructor.
        self._returned: deque[KeyedRef[_Place, Range]] = deque()
        usage.join(self)
        self._numbers = 0
        # The driver's message when it last refused memory.
        self._refusal = ""
        self._allocated = self._allocations = 0
        self._closed = False

    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 host_access: HostAccess = "", label: str = "") -> VulkanAllocation:
        """`size` bytes (at least 1), aligned to 256. Raises OutOfDeviceMemory.

        exportable: in a block of its own that another device or API may open.
        host_access: see `driver.interface.Driver.allocate`.
        """
        rounded = -(-max(size, 1) // self._alignment) * self._alignment
        pools = self._pools["host" if host else host_access]
        for last in (False, True):
            with self._lock:
                self._take_back()
                # Empty blocks of other pools may be what fills the heap: without them it may fit.
                taken = self._find(pools, rounded, exportable) or (
                    self._trim() and self._find(pools, rounded, exportable))
            if taken or last or not self._usage.collect():
                break
        self.collect()
        if not taken:
            raise self._out_of_memory(pools, rounded, label)
        return VulkanAllocation(taken, label)

    def adopt(self, native: Any, memory_type: int, block_size: int, offset: int,
              label: str = "") -> VulkanAllocation:
        """An allocation over imported memory: a block of `block_size` bytes from `offset` on. It
        counts in `use`, not against the heap."""
        size = block_size - offset
        with self._lock:
            pool = next(pool for pool in self._all_pools if pool.memory_type == memory_type)
            block = self._enter(Block(native, block_size, pool, self._numbers, True, True))
            return VulkanAllocation(self._watched(block, offset, size), label)

    def collect(self) -> bool:
        """Frees the released ranges, unless another thread does; returns whether there were any.
        Never blocks."""
        some = False
        while self._returned and self._lock.acquire(blocking=False):
            some = True
            try:
                self._take_back()
            finally:
                self._lock.release()
        return some

    def synchronise(self, held: Range, *, to_device: bool) -> None:
        """Flushes or invalidates a range of non-coherent memory."""
        self._source.synchronise(held.block.native, held.offset, held.size, to_device=to_device)

    def trim(self) -> None:
        """Returns empty blocks to the system."""
        with self._lock:
            self._take_back()
            self._trim()

    def use(self) -> MemoryUse:
        """The memory that is allocated now."""
        with self._lock:
            self._take_back()
            blocks = [block for pool in self._all_pools for block in pool.blocks.values()]
            return MemoryUse(self._allocated, sum(block.size for block in blocks),
                             self._allocations, len(blocks),
                             sum(block.size for block in blocks if block.imported))

    def close(self) -> None:
        """Destroys all blocks, whether or not they hold allocations."""
        with self._lock:
            self._returned.clear()
            self._closed = True
            for pool in self._all_pools:
                for block in list(pool.blocks.values()):
                    self._drop(block)
            self._allocated = self._allocations = 0

    # -- with the lock held -------------------------------------------------------------------
    def _find(self, pools: Sequence[Pool], size: int, exportable: bool) -> Range | None:
        for pool in pools:
            place = ((not exportable and self._fit(pool, size))
                     or self._grow(pool, size, exportable))
            if place:
                return self._watched(*place, size)
        return None

    def _watched(self, block: Block, offset: int, size: int) -> Range:
        held = Range(self, block, offset, size)
        self._allocated += size
        self._allocations += 1
        self._live.add(KeyedRef(held, self._returned.append, (block, offset, size)))
        return held

    def _fit(self, pool: Pool, size: int) -> tuple[Block, int] | None:
        at = bisect.bisect_left(pool.free, (size, -1, -1))
        if at == len(pool.free):
            return None
        free, number, offset = pool.free[at]
        block = pool.blocks[number]
        self._remove_free(block, offset, free)
        if free > size:
            self._add_free(block, offset + size, free - size)
        return block, offset

    def _grow(self, pool: Pool, size: int, exportable: bool) -> tuple[Block, int] | None:
        if size > self._largest:
            return None
        heap_size = self._profile.memory_heaps[pool.heap][0]
        cap = min(MAX_BLOCK_SIZE, self._largest, heap_size // 8)
        cap -= cap % self._alignment
        grown = min(self._base << min(len(pool.blocks), 8), cap)
        sizes = [size] if size > grown // 2 or exportable else [grown, size]
        for block_size in sizes:
            block = self._create(pool, block_size, dedicated=block_size == size,
                                 exportable=exportable)
            if block:
                if block_size > size:
                    self._add_free(block, size, block_size - size)
                return block, 0
        return None

    def _create(self, pool: Pool, size: int, *, dedicated: bool,
                exportable: bool) -> Block | None:
        limit = self._profile.memory_heaps[pool.heap][0]
        left = self._left(pool.heap)
        if left is not None and size > left:
            self._refusal = f"other processes leave {left} bytes of it to this one"
            return None
        if not self._usage.take(pool.heap, size, limit,
                                self._profile.max_memory_allocation_count):
            return None
        try:
            native = self._source.create_block(size, pool.memory_type, visible=pool.visible,
                                               exportable=exportable)
        except OutOfDeviceMemory as error:
            self._usage.give(pool.heap, size)
            self._refusal = f"the driver refused: {error}"
            return None
        except BaseException:
            self._usage.give(pool.heap, size)
            raise
        return self._enter(Block(native, size, pool, self._numbers, dedicated))

    def _left(self, heap: int) -> int | None:
        """Bytes of a heap that the driver lets this process allocate now; None if it doesn't say.
        A budget that can't be right is the heap's size."""
        found = self._source.budget(heap)
        if found is None:
            return None
        used, budget = found
        size = self._profile.memory_heaps[heap][0]
        return max((budget if 0 < budget <= size else size) - used, 0)

    def _enter(self, block: Block) -> Block:
        self._numbers += 1
        block.pool.blocks[block.number] = block
        return block

    def _add_free(self, block: Block, offset: int, size: int) -> None:
        following = block.free_at.get(offset + size)
        if following:
            self._remove_free(block, offset + size, following)
            size += following
        preceding = block.free_end.get(offset)
        if preceding is not None:
            before = block.free_at[preceding]
            self._remove_free(block, preceding, before)
            offset, size = preceding, size + before
        block.free_at[offset] = size
        block.free_end[offset + size] = offset
        bisect.insort(block.pool.free, (size, block.number, offset))

    def _remove_free(self, block: Block, offset: int, size: int) -> None:
        del block.free_at[offset]
        del block.free_end[offset + size]
        ranges = block.pool.free
        del ranges[bisect.bisect_left(ranges, (size, block.number, offset))]

    def _drop(self, block: Block) -> None:
        for offset, size in list(block.free_at.items()):
            self._remove_free(block, offset, size)
        del block.pool.blocks[block.number]
        if not block.imported:
            self._usage.give(block.pool.heap, block.size)
        self._source.destroy_block(block.native)

    def _take_back(self) -> None:
        while self._returned:
            gone = self._returned.popleft()
            self._live.discard(gone)
            block, offset, size = gone.key
            if self._closed:
                continue
            self._allocated -= size
            self._allocations -= 1
            if block.imported:
                self._drop(block)
                continue
            self._add_free(block, offset, size)
            # One empty block is kept per pool: a loop of allocate and free stays off the driver.
            if block.empty and (block.dedicated or any(
                    other.empty for other in block.pool.blocks.values() if other is not block)):
                self._drop(block)

    def _trim(self) -> bool:
        empty = [block for pool in self._all_pools for block in pool.blocks.values()
                 if block.empty]
        for block in empty:
            self._drop(block)
        return bool(empty)

    # -- without ------------------------------------------------------------------------------
    def _out_of_memory(self, pools: list[Pool], size: int, label: str) -> OutOfDeviceMemory:
        what = f"{size} bytes" + (f" for {label!r}" if label else "")
        if not pools:
            return OutOfDeviceMemory(f"{self._profile.name} has no suitable memory type for {what}",
                                     requested=size)
        heap = pools[0].heap
        limit, in_use = self._profile.memory_heaps[heap][0], self._usage.bytes[heap]
        detail = f"{in_use} of {limit} bytes of heap {heap} are in use"
        if size > self._largest:
            limit = self._largest
            detail = f"one allocation may have at most {limit} bytes"
        elif self._usage.blocks >= self._profile.max_memory_allocation_count:
            detail = f"all {self._usage.blocks} memory allocations the device allows are in use"
        elif in_use + size <= limit:
            detail += f", but {self._refusal}"
        return OutOfDeviceMemory(f"out of device memory on {self._profile.name}: {what} requested, "
                                 f"{detail}", requested=size, in_use=in_use, limit=limit)

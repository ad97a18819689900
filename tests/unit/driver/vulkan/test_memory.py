"""The sub-allocator on a fake source of blocks: no Vulkan needed."""

from __future__ import annotations

import gc
import threading
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.profiles import stored_profile
from webnn_vk.driver import OutOfDeviceMemory
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import HostAccess
from webnn_vk.driver.vulkan.errors import VulkanError
from webnn_vk.driver.vulkan.memory import (
    MIB,
    Allocator,
    HeapUsage,
    VulkanAllocation,
    rank_memory_types,
)

LLVMPIPE, NVK, AMD, ADRENO = (
    stored_profile(name)
    for name in ("llvmpipe", "nvidia_ampere", "amd_navi31", "adreno_minimum"))
#: The maker's driver has a type without properties and a window that the host sees.
NVIDIA = NVK.replace(memory_types=(
    (1, ()), (0, ("device_local",)), (1, ("host_visible", "host_coherent")),
    (1, ("host_visible", "host_coherent", "host_cached")),
    (0, ("device_local", "host_visible", "host_coherent")),
))
SMALL = LLVMPIPE.replace(memory_heaps=((64 * MIB, True),), max_memory_allocation_size=16 * MIB)
EVERY_TYPE = 2**32 - 1


class FakeBlocks:
    """Blocks that are only numbers; fails the `fail_at`-th creation (counted from 1)."""

    def __init__(self, fail_at: int = 0, error: Exception | None = None) -> None:
        self.living: dict[int, int] = {}
        self.created = 0
        self.fail_at, self.error = fail_at, error or OutOfDeviceMemory("refused")
        self.synchronised: list[tuple[int, int, bool]] = []
        #: Bytes that other processes use, and the budget without them; None: it isn't known.
        self.others, self.whole = 0, None

    def budget(self, heap: int) -> tuple[int, int] | None:
        used = sum(self.living.values())
        return None if self.whole is None else (used, self.whole - self.others)

    def create_block(self, size: int, memory_type: int, *, visible: bool,
                     exportable: bool) -> SimpleNamespace:
        self.created += 1
        if self.created == self.fail_at:
            raise self.error
        self.living[self.created] = size
        mapped = memoryview(bytearray(min(size, 4 * MIB))) if visible else None
        return SimpleNamespace(buffer=self.created, mapped=mapped, exportable=exportable)

    def destroy_block(self, native: SimpleNamespace) -> None:
        del self.living[native.buffer]

    def synchronise(self, native: SimpleNamespace, offset: int, size: int, *,
                    to_device: bool) -> None:
        self.synchronised.append((offset, size, to_device))


def make(profile: DeviceProfile = SMALL, blocks: FakeBlocks | None = None,
         usage: HeapUsage | None = None, block_size: int = MIB) -> tuple[Allocator, FakeBlocks]:
    blocks = blocks or FakeBlocks()
    usage = usage or HeapUsage(len(profile.memory_heaps))
    return Allocator(profile, blocks, EVERY_TYPE, usage, block_size), blocks


def check(allocator: Allocator, blocks: FakeBlocks, living: list[VulkanAllocation]) -> None:
    """Invariants of the allocator."""
    use = allocator.use()
    assert use.allocated == sum(item.size for item in living)
    assert use.allocations == len(living)
    assert use.reserved == sum(blocks.living.values())
    assert use.blocks == len(blocks.living)
    assert use.reserved <= SMALL.memory_heaps[0][0]
    by_block: dict[int, list[VulkanAllocation]] = {}
    for item in living:
        by_block.setdefault(item.buffer, []).append(item)
        assert item.offset % 256 == 0
        assert item.offset + item.size <= blocks.living[item.buffer]
    for items in by_block.values():
        items.sort(key=lambda item: item.offset)
        for first, second in zip(items, items[1:], strict=False):
            assert first.offset + first.size <= second.offset
    for pool in allocator._all_pools:
        assert pool.free == sorted(pool.free)
        for block in pool.blocks.values():
            # Adjacent free ranges are merged.
            ends = {offset + size for offset, size in block.free_at.items()}
            assert not ends & block.free_at.keys()
            used = sum(item.size for item in by_block.get(block.native.buffer, []))
            assert used + sum(block.free_at.values()) == block.size


def test_what_other_processes_use_is_left_to_them() -> None:
    """A budget that the driver lowers is kept to; memory that was freed counts again."""
    allocator, blocks = make()
    blocks.whole = 64 * MIB
    first = allocator.allocate(10 * MIB)
    blocks.others = 48 * MIB
    with pytest.raises(OutOfDeviceMemory, match=(
        r"8388608 bytes for 'weights' requested, 10485760 of 67108864 bytes of heap 0 are in use, "
        r"but other processes leave 6291456 bytes of it to this one$"
    )) as caught:
        allocator.allocate(8 * MIB, label="weights")
    assert (caught.value.requested, caught.value.in_use) == (8 * MIB, 10 * MIB)
    assert blocks.created == 1, "the driver was not asked"
    allocator.allocate(6 * MIB).free()
    first.free()
    second = allocator.allocate(15 * MIB)
    blocks.others = 0
    third = allocator.allocate(16 * MIB)
    check(allocator, blocks, [second, third])


def test_empty_blocks_are_freed_before_a_budget_is_exceeded() -> None:
    allocator, blocks = make(NVIDIA, block_size=4 * MIB)
    blocks.whole = 64 * MIB
    allocator.allocate(MIB, host=True).free()  # leaves an empty block
    assert sum(blocks.living.values()) == 4 * MIB
    blocks.others = 40 * MIB
    allocator.allocate(22 * MIB)
    assert sum(blocks.living.values()) == 22 * MIB


@pytest.mark.parametrize("budget", [0, 65 * MIB, 2**63])
def test_a_budget_that_cannot_be_right_is_the_size_of_the_heap(budget: int) -> None:
    allocator, blocks = make()
    blocks.whole = budget
    held = [allocator.allocate(16 * MIB) for _ in range(4)]
    with pytest.raises(OutOfDeviceMemory, match="67108864 of 67108864 bytes of heap 0"):
        allocator.allocate(MIB)
    check(allocator, blocks, held)


def test_more_than_the_budget_in_use_leaves_nothing() -> None:
    allocator, blocks = make()
    blocks.whole = 64 * MIB
    held = allocator.allocate(10 * MIB)
    blocks.others = 60 * MIB
    with pytest.raises(OutOfDeviceMemory, match="other processes leave 0 bytes"):
        allocator.allocate(16 * MIB)
    check(allocator, blocks, [held])


@given(st.lists(st.one_of(
    st.tuples(st.just("take"), st.one_of(st.integers(0, 5000), st.integers(0, 6 * MIB))),
    st.tuples(st.just("free"), st.integers(0, 99))), max_size=60))
def test_any_sequence(steps: list[tuple[str, int]]) -> None:
    allocator, blocks = make()
    living: list[VulkanAllocation] = []
    for kind, number in steps:
        if kind == "take":
            try:
                living.append(allocator.allocate(number))
            except OutOfDeviceMemory:
                assert allocator.use().reserved + number > 48 * MIB
        elif living:
            living.pop(number % len(living)).free()
        check(allocator, blocks, living)
    for item in living:
        item.free()
    check(allocator, blocks, [])
    assert len(blocks.living) <= 1  # the spare one
    allocator.close()
    assert blocks.living == {}


def test_rounding_and_alignment() -> None:
    allocator, _ = make()
    sizes = [allocator.allocate(size).size for size in (0, 1, 256, 257)]
    assert sizes == [256, 256, 256, 512]
    strict, _ = make(SMALL.replace(min_storage_buffer_offset_alignment=1024))
    assert strict.allocate(1).size == 1024


def test_best_fit() -> None:
    allocator, _ = make()
    items = [allocator.allocate(size) for size in (1024, 256, 512, 256, 768, 256)]
    for index in (0, 2, 4):
        items[index].free()
    offsets = {size: allocator.allocate(size).offset for size in (500, 700)}
    assert offsets == {500: items[2].offset, 700: items[4].offset}


def test_coalescing() -> None:
    allocator, blocks = make()
    items = [allocator.allocate(256 * 1024) for _ in range(4)]
    assert len(blocks.living) == 1
    for index in (0, 2, 1):
        items[index].free()
    assert allocator.allocate(768 * 1024).offset == 0
    assert len(blocks.living) == 1


def test_free_is_idempotent_and_collection_frees() -> None:
    allocator, _ = make()
    item = allocator.allocate(10)
    item.free()
    item.free()
    assert item.freed and item.mapped is None
    assert allocator.use().allocations == 0
    second = allocator.allocate(10)
    assert allocator.use().allocations == 1
    del second
    gc.collect()
    assert allocator.use().allocations == 0
    with pytest.raises(ValueError, match="freed"):
        item.held  # noqa: B018


def test_range_outlives_the_allocation_while_used() -> None:
    allocator, _ = make()
    item = allocator.allocate(300)
    held = item.held
    item.free()
    assert allocator.use().allocated == 512
    assert allocator.allocate(512).offset == 512
    del held
    gc.collect()
    assert allocator.use().allocated == 0


def test_blocks_grow_and_large_requests_are_dedicated() -> None:
    allocator, blocks = make()
    living = [allocator.allocate(100_000) for _ in range(60)]
    # 1, 2, 4 MiB …; no more than an eighth of the heap
    assert list(blocks.living.values()) == [MIB, 2 * MIB, 4 * MIB]
    large = allocator.allocate(5 * MIB)
    assert blocks.living[large.buffer] == 5 * MIB
    large.free()
    allocator.use()
    assert len(blocks.living) == 3
    del living


def test_heap_limit_over_all_drivers() -> None:
    usage = HeapUsage(1)
    first, _ = make(usage=usage)
    second, _ = make(usage=usage)
    held = [first.allocate(16 * MIB) for _ in range(3)]
    other = second.allocate(12 * MIB)
    with pytest.raises(OutOfDeviceMemory) as caught:
        second.allocate(5 * MIB, label="weights")
    error = caught.value
    assert (error.requested, error.in_use, error.limit) == (5 * MIB, 60 * MIB, 64 * MIB)
    assert "'weights'" in str(error) and str(60 * MIB) in str(error)
    held.pop().free()
    assert second.allocate(5 * MIB).size == 5 * MIB
    del other


def test_whole_heap_fits() -> None:
    profile = SMALL.replace(max_memory_allocation_size=64 * MIB)
    allocator, blocks = make(profile)
    allocator.allocate(10).free()
    # The spare block makes room.
    held = allocator.allocate(64 * MIB)
    assert held.size == 64 * MIB
    assert list(blocks.living.values()) == [64 * MIB]


def test_small_requests_use_the_last_of_the_heap() -> None:
    profile = SMALL.replace(max_memory_allocation_size=64 * MIB)
    allocator, _ = make(profile)
    held = [allocator.allocate(64 * MIB - 512 * 1024)]
    # No room for a block of 1 MiB, only for one of the request's size.
    held += [allocator.allocate(128 * 1024) for _ in range(4)]
    with pytest.raises(OutOfDeviceMemory):
        allocator.allocate(1)


def test_larger_than_one_allocation() -> None:
    allocator, blocks = make()
    with pytest.raises(OutOfDeviceMemory, match=f"at most {16 * MIB} bytes"):
        allocator.allocate(16 * MIB + 1)
    assert blocks.created == 0


def test_allocation_count_limit() -> None:
    allocator, blocks = make(SMALL.replace(max_memory_allocation_count=2))
    held = [allocator.allocate(9 * MIB) for _ in range(2)]
    with pytest.raises(OutOfDeviceMemory, match="all 2 memory allocations"):
        allocator.allocate(9 * MIB)
    assert blocks.created == 2
    del held


def test_driver_refuses() -> None:
    usage = HeapUsage(1)
    allocator, blocks = make(blocks=FakeBlocks(fail_at=2), usage=usage)
    held = allocator.allocate(3 * MIB)
    with pytest.raises(OutOfDeviceMemory, match="the driver refused: refused"):
        allocator.allocate(3 * MIB)
    assert usage.bytes == [3 * MIB] and usage.blocks == 1
    # The allocator still works.
    check(allocator, blocks, [held])
    assert allocator.allocate(3 * MIB).size == 3 * MIB


def test_other_failure_passes_through() -> None:
    usage = HeapUsage(1)
    allocator, _ = make(blocks=FakeBlocks(1, VulkanError("odd", "VK_ERROR_UNKNOWN")), usage=usage)
    with pytest.raises(VulkanError, match="odd"):
        allocator.allocate(1)
    assert usage.bytes == [0] and usage.blocks == 0
    assert allocator.allocate(1).size == 256


@pytest.mark.parametrize(("profile", "host", "expected"), [
    (LLVMPIPE, False, [0]),
    (LLVMPIPE, True, [0]),
    (NVIDIA, False, [1, 4]),  # plain device memory before the host-visible window
    (NVIDIA, True, [3, 2, 4]),  # cached before coherent, host memory before device memory
    (NVK, False, [0, 1]),
    (NVK, True, [2, 1]),
    (AMD, False, [0, 1, 7, 3, 4, 9]),
    (AMD, True, [5, 6, 10, 2, 8, 3, 4, 9]),
    (ADRENO, False, [1, 2, 0]),  # shared memory: visible ones first
    (ADRENO, True, [1, 2]),
])
def test_memory_types(profile: DeviceProfile, host: bool, expected: list[int]) -> None:
    assert rank_memory_types(profile, EVERY_TYPE, host=host) == expected


@pytest.mark.parametrize(("profile", "host_access", "expected"), [
    (LLVMPIPE, "write", [0]),
    (LLVMPIPE, "read", [0]),
    (NVIDIA, "write", [4, 1]),  # the window before plain device memory
    (NVIDIA, "read", [3, 1, 4]),  # cached memory of the host
    (NVK, "write", [1, 0]),
    (NVK, "read", [2, 0, 1]),
    (AMD, "write", [3, 4, 9, 0, 1, 7]),
    (AMD, "read", [5, 6, 10, 0, 1, 7, 3, 4, 9]),
    (ADRENO, "write", [1, 2, 0]),
    (ADRENO, "read", [1, 2, 0]),
    (NVIDIA.replace(memory_types=NVIDIA.memory_types[:3]), "write", [1]),  # neither exists
    (NVIDIA.replace(memory_types=NVIDIA.memory_types[:3]), "read", [1]),
])
def test_memory_types_that_the_host_accesses_too(
    profile: DeviceProfile, host_access: HostAccess, expected: list[int]
) -> None:
    assert rank_memory_types(profile, EVERY_TYPE, host_access=host_access) == expected


def test_memory_of_the_next_type_where_one_is_full() -> None:
    full = NVIDIA.replace(memory_types=(*NVIDIA.memory_types[:4], (2, NVIDIA.memory_types[4][1])),
                          memory_heaps=(*NVIDIA.memory_heaps[:2], (8 * 1024, True)))
    allocator = Allocator(full, FakeBlocks(), EVERY_TYPE, HeapUsage(3), MIB)
    seen = [allocator.allocate(4096, host_access="write") for _ in range(3)]
    assert [item.mapped is not None for item in seen] == [True, True, False]
    assert allocator.allocate(4096, host_access="read").cached


def test_memory_types_are_masked_by_the_buffers_requirements() -> None:
    assert rank_memory_types(NVIDIA, 0b01100, host=True) == [3, 2]
    assert rank_memory_types(NVIDIA, 0b10000, host=False) == [4]
    allocator = Allocator(NVIDIA, FakeBlocks(), 0b00100, HeapUsage(2), MIB)
    with pytest.raises(OutOfDeviceMemory, match="no suitable memory type"):
        allocator.allocate(1)


def test_mapped_is_the_allocations_part() -> None:
    allocator, _ = make()
    first, second = allocator.allocate(256, host=True), allocator.allocate(256, host=True)
    first.mapped[:] = b"a" * 256
    second.mapped[:] = b"b" * 256
    assert bytes(first.mapped) == b"a" * 256
    on_gpu = Allocator(NVIDIA, FakeBlocks(), EVERY_TYPE, HeapUsage(2), MIB)
    assert on_gpu.allocate(1).mapped is None
    assert len(on_gpu.allocate(1, host=True).mapped) == 256


def test_whether_the_host_caches_what_it_reads() -> None:
    window = NVIDIA.replace(memory_types=NVIDIA.memory_types[4:])
    for profile, host, cached in (
        (LLVMPIPE, False, True), (NVIDIA, True, True), (NVK, True, True), (window, False, False),
    ):
        allocator = Allocator(profile, FakeBlocks(), EVERY_TYPE, HeapUsage(2), MIB)
        item = allocator.allocate(1, host=host)
        assert item.cached == cached and item.mapped is not None, profile.name


def test_flush_of_non_coherent_memory() -> None:
    blocks = FakeBlocks()
    allocator = Allocator(ADRENO, blocks, EVERY_TYPE, HeapUsage(1), MIB)
    allocator.allocate(100, host=True)
    item = allocator.allocate(300, host=True)
    item.flush()
    item.invalidate()
    assert blocks.synchronised == [(0, 512, True), (0, 512, False)]
    coherent, blocks = make()
    coherent.allocate(1, host=True).flush()
    assert blocks.synchronised == []


def test_free_inside_a_collection_under_the_lock() -> None:
    allocator, _ = make()
    item = allocator.allocate(10)
    with allocator._lock:
        item.free()  # a destructor may run here: it must not wait for the lock
    assert allocator.use().allocations == 0


def test_threads() -> None:
    allocator, blocks = make()

    def work() -> None:
        for size in range(1, 400):
            held = [allocator.allocate(size * 7), allocator.allocate(size)]
            held.pop(size % 2).free()
    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    check(allocator, blocks, [])


def test_after_close() -> None:
    allocator, blocks = make()
    held = allocator.allocate(10)
    allocator.close()
    assert blocks.living == {}
    held.free()
    assert allocator.use().allocations == 0


def test_exportable_memory_has_a_block_of_its_own() -> None:
    allocator, blocks = make()
    first = allocator.allocate(256)
    shared = allocator.allocate(256, exportable=True)
    assert blocks.living == {1: MIB, 2: 256}
    assert shared.held.block.native.exportable and not first.held.block.native.exportable
    allocator.allocate(256)
    assert len(blocks.living) == 2
    shared.free()
    assert allocator.use().reserved == MIB


def test_imported_memory_is_no_load_on_the_heap() -> None:
    usage = HeapUsage(1)
    allocator, blocks = make(usage=usage)
    blocks.living[77] = 128 * MIB
    native = SimpleNamespace(buffer=77, mapped=None)
    item = allocator.adopt(native, 0, 128 * MIB, 4096, "pages")
    assert (item.buffer, item.offset, item.size) == (77, 4096, 128 * MIB - 4096)
    assert usage.bytes == [0] and usage.blocks == 0
    assert allocator.use().allocated == item.size
    # The bytes before it belong to no allocation.
    held = allocator.allocate(256)
    assert held.buffer != 77
    item.free()
    assert allocator.use().allocated == 256
    assert 77 not in blocks.living and usage.blocks == 1

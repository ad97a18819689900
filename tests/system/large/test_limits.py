"""Graphs that exceed a device are refused with a clear error. The library's accounting decides,
because lavapipe's driver would grant far more than its heap."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder, OperationError, UnknownError
from webnn_vk.driver.resources import room_for

MIB = 2**20


@pytest.fixture
def small_heap(vulkan):
    """A device with a heap of 64 MiB that allocates and binds up to 48 and 16 MiB."""
    limits = {
        "memory_heaps": ((64 * MIB, True),), "max_memory_allocation_size": 48 * MIB,
        "max_storage_buffer_range": 16 * MIB,
    }
    with open_context(limits=limits) as context:
        yield context


def tensor(context, mib):
    shape = [mib * MIB // 4]
    return context.create_tensor({"data_type": "float32", "shape": shape}).result()


def test_max_tensor_byte_length_is_the_least_of_three(vulkan_context):
    profile = vulkan_context._state.device.profile
    least = min(
        profile.max_buffer_size, profile.max_memory_allocation_size, profile.local_heap_size
    )
    limit = vulkan_context.op_support_limits()["max_tensor_byte_length"]
    # Rounded to whole alignments, and below the 32 bits in which kernels count bytes.
    assert limit == min(least, 2**32 - 256) // 256 * 256
    assert limit > profile.max_storage_buffer_range or limit == least


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("max_buffer_size", 96 * MIB),
        ("max_memory_allocation_size", 96 * MIB),
        ("memory_heaps", ((96 * MIB, True), (4096 * MIB, False))),
    ],
)
def test_each_of_the_three_can_be_the_least(field, value):
    profile = stored_profile("llvmpipe")
    assert profile.max_tensor_byte_length > 96 * MIB
    assert profile.replace(**{field: value}).max_tensor_byte_length == 96 * MIB
    # The binding limit plays no part.
    assert profile.replace(max_storage_buffer_range=MIB).max_tensor_byte_length == (
        profile.max_tensor_byte_length
    )


def test_a_tensor_over_the_limit(small_heap):
    limit = small_heap.op_support_limits()["max_tensor_byte_length"]
    assert limit == 48 * MIB
    message = f"exceed max_tensor_byte_length {limit}"
    with pytest.raises(TypeError, match=message):
        tensor(small_heap, 49)
    builder = MLGraphBuilder(small_heap)
    with pytest.raises(TypeError, match=message):
        builder.input("x", {"data_type": "float32", "shape": [49 * MIB // 4]})
    x = builder.input("x", {"data_type": "float32", "shape": [25 * MIB // 4]})
    with pytest.raises(TypeError, match=rf"concat \[wide\].*{message}"):
        builder.concat([x, x], 0, label="wide")


def test_tensors_over_the_heap(small_heap):
    first = tensor(small_heap, 40)
    room = room_for(40 * MIB, small_heap._state.device.profile)
    with pytest.raises(UnknownError, match=rf"{room}.*heap"):
        tensor(small_heap, 40)
    # What fits beside it still does, and freed memory can be used again.
    other = tensor(small_heap, 8)
    for made in (first, other):
        made.destroy()
    tensor(small_heap, 40)


def test_a_graph_over_the_heap(small_heap):
    """A constant and an intermediate together exceed the memory."""
    builder = MLGraphBuilder(small_heap)
    count = 40 * MIB // 4
    x = builder.input("x", {"data_type": "float32", "shape": [count]})
    sums = builder.reduce_sum(builder.softmax(x, 0))
    weights = builder.constant(np.ones(count, np.float32))
    y = builder.add(sums, builder.reduce_sum(builder.add(builder.softmax(x, 0), weights)))
    with pytest.raises(OperationError, match="heap"):
        builder.build({"y": y}).result()
    # The refused graph holds nothing.
    gc.collect()
    tensor(small_heap, 40)


@pytest.mark.large
def test_real_allocations_until_the_heap_is_full(vulkan_context):
    heap = vulkan_context._state.device.profile.local_heap_size
    if heap > 8 * 2**30:
        pytest.skip("fills the heap of a software device only")
    gc.collect()
    size = 256
    made = []
    # Memory of the same heap in other contexts of this process, by our own accounting.
    held = sum(vulkan_context._state.device.driver._memory._usage.bytes)
    with pytest.raises(UnknownError, match="heap"):
        for _ in range(heap // (size * MIB) + 1):
            made.append(tensor(vulkan_context, size))
    used = len(made) * size * MIB
    # All that was free; the driver alone would go on.
    assert heap - held - 2 * size * MIB < used <= heap
    for one in made:
        one.destroy()
    tensor(vulkan_context, size).destroy()

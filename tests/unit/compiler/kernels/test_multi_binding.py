"""Tensors that one descriptor can't span, bound in portions."""

from __future__ import annotations

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels import Scratch, Unsupported
from webnn_vk.compiler.kernels.dispatch import Binding
from webnn_vk.compiler.kernels.loads import texel_bytes
from webnn_vk.compiler.kernels.multi_binding import bound, check_bindings, total_bytes
from webnn_vk.compiler.types.access import Access
from webnn_vk.compiler.types.data_types import MLOperandDescriptor

DEVICE = stored_profile("llvmpipe").replace(max_storage_buffer_range=1024)


def value(count: int, data_type: str = "float32") -> Access:
    return Access.dense(Value(MLOperandDescriptor(data_type, (count,)), name="x"))


def test_what_fits_is_bound_whole() -> None:
    for target in (value(256), value(1), Scratch(1024)):
        made = bound("x", target, DEVICE, "w", data_type="float32")
        memory = target.value if isinstance(target, Access) else target
        assert made.bindings == (Binding(memory),) and made.constants == {}
        assert (made.buffer.name, made.buffer.access, made.buffer.portions) == ("x", "w", 1)


@pytest.mark.parametrize(
    ("count", "data_type", "ends", "elements"),
    [
        (257, "float32", [1024, 1040], 256),
        (600, "float32", [1024, 2048, 2400], 256),
        (1500, "float16", [1024, 2048, 3008], 512),
        (300, "int64", [1024, 2048, 2400], 128),
    ],
)
def test_portions_follow_each_other(
    count: int, data_type: str, ends: list[int], elements: int
) -> None:
    target = value(count, data_type)
    made = bound("x", target, DEVICE)
    assert made.buffer.data_type == data_type and made.buffer.portions == len(ends)
    starts = [0, *ends[:-1]]
    assert made.bindings == tuple(
        Binding(target.value, start, end - start) for start, end in zip(starts, ends, strict=True)
    )
    assert made.constants == {"PORTION_x": elements}


def test_what_is_read_as_texels_is_bound_whole_beyond_a_range() -> None:
    # The binding limit of storage buffers does not apply to texels.
    given, most = value(600), texel_bytes(DEVICE)
    assert most == 16 * DEVICE.max_texel_buffer_elements
    made = bound("x", given, DEVICE, texels=most)
    assert (made.buffer.load, made.bindings) == ("texel", (Binding(given.value),))
    assert bound("x", given, DEVICE, "w", texels=most).buffer.portions == 3
    few = texel_bytes(DEVICE.replace(max_texel_buffer_elements=149))
    assert bound("x", given, DEVICE, texels=few).buffer.portions == 3
    assert texel_bytes(DEVICE.masked(["texel_buffers"])) == texel_bytes(DEVICE, "storage") == 0


def test_portions_begin_where_the_device_may_bind() -> None:
    odd = DEVICE.replace(max_storage_buffer_range=1000)
    assert [b.offset for b in bound("x", value(400), odd).bindings] == [0, 768, 1536]
    coarse = DEVICE.replace(max_storage_buffer_range=1500, min_storage_buffer_offset_alignment=512)
    assert [b.offset for b in bound("x", value(600), coarse).bindings] == [0, 1024, 2048]


def test_more_than_64_portions_are_refused() -> None:
    assert bound("x", value(64 * 256), DEVICE).buffer.portions == 64
    with pytest.raises(Unsupported, match="65552 bytes in bindings of 1024: more than 64"):
        bound("x", value(64 * 256 + 1), DEVICE)


def test_descriptors_are_counted_against_both_limits() -> None:
    for field in ("max_storage_buffers_per_stage", "max_storage_buffers_per_set"):
        few = DEVICE.replace(**{field: 4})
        check_bindings(4, "add", few)
        with pytest.raises(Unsupported, match="add needs 5 storage buffers; the device offers 4"):
            check_bindings(5, "add", few)


def test_each_tensor_counts_once() -> None:
    x, scratch = value(600), Scratch(100)
    bindings = (*bound("x", x, DEVICE).bindings, Binding(scratch), Binding(x.value))
    assert total_bytes(bindings) == 2400 + 100

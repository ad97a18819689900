"""Bind groups, encoders, passes and command buffers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.support.gpu_shaders import (
    ALL,
    COPY_DST,
    COPY_SRC,
    STORAGE,
    contents,
    encode,
    pipeline,
    push,
    scale_pipeline,
)
from webnn_vk import InvalidStateError
from webnn_vk.gpu import GPUBufferBinding

pytestmark = pytest.mark.usefixtures("compiler")


def filled(device: Any, *values: float) -> Any:
    return device.create_buffer_with_data(data=np.float32(values), usage=ALL)


def test_each_command_sees_the_ones_before(device: Any) -> None:
    a, b = filled(device, *[1.0] * 256), filled(device, *[0.0] * 256)
    add = scale_pipeline(device, 2)
    encoder = device.create_command_encoder(label="chain")
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(add)
    compute.set_push_constants(push(256, 1))
    there, back = (device.create_bind_group(entries=pair) for pair in ((a, b), (b, a)))
    for _ in range(3):
        for group in (there, back):
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(4)
    compute.end()
    encoder.clear_buffer(b, 0, 512)
    encoder.copy_buffer_to_buffer(a, 256, b, 0, 128)
    with encoder.begin_compute_pass() as compute:
        compute.set_pipeline(add)
        compute.set_bind_group(0, there)
        compute.set_push_constants(push(16, 0.5))
        compute.dispatch_workgroups(1)
    device.queue.submit([encoder.finish()])
    assert np.array_equal(contents(device, a), np.full(256, 127, np.float32))
    expected = np.concatenate(
        [np.full(16, 254.5), np.full(16, 127), np.zeros(96), np.full(128, 63)]
    )
    assert np.array_equal(contents(device, b), expected.astype(np.float32))


def test_entries_of_all_forms(device: Any) -> None:
    step = device.limits["min_storage_buffer_offset_alignment"]
    data = np.arange(step // 4 + 8, dtype=np.float32)
    made, target = scale_pipeline(device), device.create_buffer(size=4 * 8, usage=ALL)
    source = device.create_buffer_with_data(data=data, usage=STORAGE)
    for entries in (
        [GPUBufferBinding(source, step), target],
        [{"buffer": source, "offset": step, "size": 32}, {"buffer": target}],
        [
            {"binding": 1, "resource": {"buffer": target}},
            {"binding": 0, "resource": {"buffer": source, "offset": step}},
        ],
        [{"binding": 1, "resource": target}, {"binding": 0, "resource": GPUBufferBinding(
            source, step, 32)}],
    ):
        device.queue.write_buffer(target, 0, np.zeros(8, np.float32))
        device.queue.submit([encode(device, (made, entries, push(8), 1))])
        assert np.array_equal(contents(device, target), data[step // 4:])


def test_gaps_in_the_bindings(device: Any) -> None:
    code = """#version 450
    layout(binding = 1) readonly buffer A { float a; };
    layout(binding = 3) writeonly buffer B { float b; };
    void main() { b = a; }"""
    a, b = filled(device, 4), filled(device, 0)
    entries = [{"binding": 3, "resource": b}, {"binding": 1, "resource": a}]
    device.queue.submit([encode(device, (pipeline(device, code), entries, b"", 1))])
    assert contents(device, b).tolist() == [4]


def test_nothing_bound(device: Any) -> None:
    made = pipeline(device, "#version 450\nvoid main() {}")
    encoder = device.create_command_encoder()
    with encoder.begin_compute_pass() as compute:
        compute.set_pipeline(made)
        compute.dispatch_workgroups(1)
    assert device.queue.submit([encoder.finish()]).wait(60)
    assert device.queue.submit([device.create_command_encoder().finish()]).wait(60)


def test_wrong_bind_groups(device: Any, own_device: Any) -> None:
    buffer = filled(device, *range(64))
    copies = device.create_buffer(size=16, usage=COPY_SRC | COPY_DST)
    step = device.limits["min_storage_buffer_offset_alignment"]
    for entries, error, message in (
        ([copies], ValueError, "binding 0: .* usage STORAGE"),
        (["buffer"], TypeError, "binding 0: a GPUBuffer"),
        ([{"buffer": buffer, "length": 4}], TypeError, "binding 0: a GPUBuffer"),
        ([{"binding": 2, "resource": buffer}] * 2, ValueError, "binding 2 is given twice"),
        ([GPUBufferBinding(buffer, step // 2)], ValueError, f"not a multiple of {step}"),
        ([GPUBufferBinding(buffer, 0, 260)], ValueError, "not inside"),
        ([GPUBufferBinding(buffer, 256)], ValueError, "not inside"),
        ([filled(own_device, 1)], ValueError, "another GPUDevice"),
    ):
        with pytest.raises(error, match=f"create_bind_group \\[g\\].*{message}"):
            device.create_bind_group(entries=entries, label="g")
    buffer.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        device.create_bind_group(entries=[buffer])


def test_wrong_passes(device: Any, own_device: Any) -> None:
    a, b = filled(device, *range(64)), filled(device, *range(64))
    made = scale_pipeline(device)
    group = device.create_bind_group(entries=[a, b])
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    with pytest.raises(InvalidStateError, match="no pipeline"):
        compute.dispatch_workgroups(1)
    with pytest.raises(TypeError, match="GPUComputePipeline is expected"):
        compute.set_pipeline(group)
    with pytest.raises(ValueError, match="another GPUDevice"):
        compute.set_pipeline(scale_pipeline(own_device))
    compute.set_pipeline(made)
    with pytest.raises(ValueError, match="needs set_push_constants"):
        compute.dispatch_workgroups(1)
    with pytest.raises(ValueError, match="4 bytes, .* has 8"):
        compute.set_push_constants(b"1234")
    with pytest.raises(TypeError, match="bytes are expected"):
        compute.set_push_constants({"n": 1})
    compute.set_push_constants(np.uint32([64, 0]))
    with pytest.raises(ValueError, match="nothing is bound at \\[0, 1\\]"):
        compute.dispatch_workgroups(1)
    compute.set_bind_group(0, device.create_bind_group(entries=[a]))
    with pytest.raises(ValueError, match="nothing is bound at \\[1\\]"):
        compute.dispatch_workgroups(1)
    with pytest.raises(TypeError, match="GPUBindGroup is expected"):
        compute.set_bind_group(0, [a, b])
    with pytest.raises(ValueError, match="group 0 only"):
        compute.set_bind_group(1, group)
    with pytest.raises(ValueError, match="another GPUDevice"):
        compute.set_bind_group(0, own_device.create_bind_group(entries=[filled(own_device, 1)]))
    compute.set_bind_group(0, device.create_bind_group(entries=[a, a]))
    with pytest.raises(ValueError, match="bindings 0 and 1 overlap"):
        compute.dispatch_workgroups(1)
    compute.set_bind_group(0, group)
    for groups, error in (
        ((1 << 31,), ValueError), ((1, -1), ValueError), ((1.5,), TypeError), (("1",), TypeError),
        ((True,), TypeError),
    ):
        with pytest.raises(error, match="dispatch_workgroups"):
            compute.dispatch_workgroups(*groups)
    assert repr(encoder) == "<GPUCommandEncoder>" and repr(compute) == "<GPUComputePass>"
    with pytest.raises(InvalidStateError, match="compute pass is open"):
        encoder.finish()
    with pytest.raises(InvalidStateError, match="compute pass is open"):
        encoder.clear_buffer(a)
    compute.end()
    with pytest.raises(InvalidStateError, match="has ended"):
        compute.dispatch_workgroups(1)
    command = encoder.finish()
    with pytest.raises(InvalidStateError, match="finished"):
        encoder.begin_compute_pass()
    with pytest.raises(ValueError, match="another GPUDevice"):
        own_device.queue.submit([command])
    # None of the refused dispatches was recorded.
    device.queue.submit([command])
    assert np.array_equal(contents(device, b), np.arange(64))


def test_parts_of_one_buffer_beside_each_other(device: Any) -> None:
    step = device.limits["min_storage_buffer_offset_alignment"]
    buffer = filled(device, *range(2 * step // 4))
    halves = [GPUBufferBinding(buffer, 0, step), GPUBufferBinding(buffer, step, step)]
    device.queue.submit(
        [encode(device, (scale_pipeline(device, 2), halves, push(step // 4, 1), 1))]
    )
    first = np.arange(step // 4, dtype=np.float32)
    assert np.array_equal(contents(device, buffer), np.concatenate([first, first * 2 + 1]))


def test_wrong_copies(device: Any) -> None:
    a, b = filled(device, *range(8)), filled(device, *range(8))
    only = device.create_buffer(size=32, usage=STORAGE)
    encoder = device.create_command_encoder()
    for call, message in (
        (lambda: encoder.copy_buffer_to_buffer(a, 0, a, 16, 16), "are the same"),
        (lambda: encoder.copy_buffer_to_buffer(a, 4, b, 8), "not inside"),
        (lambda: encoder.copy_buffer_to_buffer(a, 0, b, 0, 36), "not inside"),
        (lambda: encoder.copy_buffer_to_buffer(only, 0, b, 0), "usage COPY_SRC"),
        (lambda: encoder.copy_buffer_to_buffer(a, 0, only, 0), "usage COPY_DST"),
        (lambda: encoder.clear_buffer(only), "usage COPY_DST"),
        (lambda: encoder.clear_buffer(a, 2, 4), "multiples of 4"),
        (lambda: encoder.clear_buffer(a, 0, 6), "multiples of 4"),
        (lambda: encoder.clear_buffer(a, 32), "not inside"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
    encoder.copy_buffer_to_buffer(a, 3, b, 1, 7)  # bytes, where WebGPU requires words
    device.queue.submit([encoder.finish()])
    raw = np.arange(8, dtype=np.float32).view(np.uint8)
    expected = raw.copy()
    expected[1:8] = raw[3:10]
    assert np.array_equal(device.queue.read_buffer(b).result(60), expected)


def test_submitted_again(device: Any) -> None:
    """Unlike in WebGPU, a command buffer may be; destroyed buffers end that."""
    a, b = filled(device, *[1.0] * 8), filled(device, *[0.0] * 8)
    there = encode(device, (scale_pipeline(device, 2), [a, b], push(8), 1))
    back = encode(device, (scale_pipeline(device, 1), [b, a], push(8), 1))
    for _ in range(5):
        device.queue.submit([there, back])
    assert contents(device, a).tolist() == [32.0] * 8
    b.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        device.queue.submit([there])
    assert contents(device, a).tolist() == [32.0] * 8


def test_destroy_after_submit(device: Any) -> None:
    """Work submitted before still runs on the buffer's memory."""
    a, b = filled(device, *[1.0] * 64), filled(device, *[0.0] * 64)
    c = filled(device, *[0.0] * 64)
    made = scale_pipeline(device, 2)
    device.queue.submit([encode(device, (made, [a, b], push(64), 1))])
    device.queue.submit([encode(device, (made, [b, c], push(64), 1))])
    a.destroy()
    b.destroy()
    filled(device, *[9.0] * 64)  # takes memory meanwhile
    assert contents(device, c).tolist() == [4.0] * 64

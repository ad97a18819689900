"""Uniform texel buffers: views, valid bindings, and memory that changes owners."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from tests.device.driver.vulkan.test_device import download, run, upload
from tests.support.drivers import pipeline_of
from tests.support.glsl import compiled
from webnn_vk.driver import BarrierCommand, CopyCommand, DispatchCommand, PipelineRequest
from webnn_vk.driver.vulkan.driver import VulkanDriver, open_driver
from webnn_vk.driver.vulkan.snapshot import PhysicalDevice

TEXELS = ((0, "rgba32f"),)
# target[i] = 2 * source[i], one texel per invocation.
SHADER = """#version 450
layout(local_size_x = 8) in;
layout(set = 0, binding = 0) uniform samplerBuffer source;
layout(std430, set = 0, binding = 1) writeonly buffer Target { vec4 v[]; } target;
void main() {
  target.v[gl_GlobalInvocationID.x] = 2.0 * texelFetch(source, int(gl_GlobalInvocationID.x));
}
"""


@pytest.fixture(scope="module")
def doubles(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return compiled(SHADER, tmp_path_factory.mktemp("texels"))


def test_ranges_and_memory_that_change_hands(own_driver: VulkanDriver, doubles: bytes) -> None:
    """Views of two ranges of a buffer; the second dispatch reads the first's output as texels; a
    recording's views outlive the allocation's `free`, and new memory there gets new views."""
    pipeline = pipeline_of(own_driver, doubles, binding_count=2, texels=TEXELS)
    for first in (0.0, 1000.0):  # the second finds the memory of the first
        values = np.arange(first, first + 256, dtype=np.float32)
        source = upload(own_driver, values)
        middle, target = own_driver.allocate(1024), own_driver.allocate(1024)
        recording = own_driver.record([
            DispatchCommand(pipeline, ((source, 0, 512), (middle, 0, 512)), b"", (4, 1, 1)),
            DispatchCommand(pipeline, ((source, 512, 512), (middle, 512, 512)), b"", (4, 1, 1)),
            BarrierCommand(),
            DispatchCommand(pipeline, ((middle, 0, 1024), (target, 0, 1024)), b"", (8, 1, 1)),
            BarrierCommand(),
            CopyCommand(target, 0, source, 0, 512),
        ])
        own_driver.wait(own_driver.submit([recording]), 60)
        assert (download(own_driver, target, 256).view(np.float32) == 4 * values).all()
        middle.free()
        own_driver.wait(own_driver.submit([recording]), 60)
        again = np.concatenate([16 * values[:128], 4 * values[128:]])
        assert (download(own_driver, target, 256).view(np.float32) == again).all()
        recording.free()
        source.free()
        target.free()


def test_a_storage_and_a_texel_binding_of_the_same_memory_are_two_sets(
    own_driver: VulkanDriver, doubles: bytes, spirv: bytes
) -> None:
    """Descriptors are distinguished by their kind, not by the memory alone."""
    scale = pipeline_of(own_driver, spirv, binding_count=2, push_size=8,
                                constants=((0, struct.pack("<I", 64)), (1, struct.pack("<I", 3))))
    double = pipeline_of(own_driver, doubles, binding_count=2, texels=TEXELS)
    source = upload(own_driver, np.ones(64, np.float32))
    target = own_driver.allocate(256)
    bindings = ((source, 0, 256), (target, 0, 256))
    run(own_driver, DispatchCommand(scale, bindings, struct.pack("<II", 64, 0), (1, 1, 1)),
        BarrierCommand(), DispatchCommand(double, bindings, b"", (2, 1, 1)))
    assert (download(own_driver, target, 64).view(np.float32) == 2.0).all()


def test_what_may_not_be_bound_as_texels(physical: PhysicalDevice, doubles: bytes) -> None:
    profile = physical.profile.replace(
        max_texel_buffer_elements=32, min_texel_buffer_offset_alignment=64)
    driver = open_driver(physical, profile=profile)
    pipeline = pipeline_of(driver, doubles, binding_count=2, texels=TEXELS)
    source, target = driver.allocate(4096), driver.allocate(4096)

    def bound(offset: int, size: int) -> None:
        driver.record([DispatchCommand(
            pipeline, ((source, offset, size), (target, 0, 4096)), b"", (1, 1, 1))])

    bound(64, 512)
    with pytest.raises(ValueError, match="binding 0: 24 bytes; texels of 16 bytes, at most 32"):
        bound(0, 24)
    with pytest.raises(ValueError, match="528 bytes"):
        bound(0, 528)
    with pytest.raises(ValueError, match="offset is a multiple of 64"):
        bound(16, 16)
    with pytest.raises(ValueError, match="bindings below 2 of r32f"):
        pipeline_of(driver, doubles, binding_count=2, texels=((2, "rgba32f"),))
    with pytest.raises(ValueError, match="bindings below 2 of r32f"):
        pipeline_of(driver, doubles, binding_count=2, texels=((0, "r8"),))
    driver.close()


def test_a_device_without_them(physical: PhysicalDevice, doubles: bytes) -> None:
    """No pipeline, and buffers without the usage flag, which the validation layer would report."""
    driver = open_driver(physical, profile=physical.profile.masked(["texel_buffers"]))
    with pytest.raises(ValueError, match="texel buffers, which the device does not have"):
        driver.pipelines([PipelineRequest(doubles, 2, texels=TEXELS)])
    driver.close()


def test_buffers_stay_within_the_device_s_limits(physical: PhysicalDevice) -> None:
    """They are widened, but not beyond the buffer, so that llvmpipe's kernels have no size in
    common."""
    most = 1 << 20
    driver = open_driver(physical, profile=physical.profile.replace(
        max_buffer_size=most, max_memory_allocation_size=most))
    held = driver.allocate(most).held.block.native
    assert held.size == most
    driver.close()

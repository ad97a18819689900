"""Checks that all drivers make before any call: requests and commands against a profile."""

from __future__ import annotations

from webnn_vk.driver.commands import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
    OwnershipCommand,
    ResolveCommand,
    TimestampCommand,
)
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.resources import TEXEL_BYTES, Allocation, PipelineRequest

_SPIRV_MAGIC = 0x07230203


def check_pipeline(request: PipelineRequest, profile: DeviceProfile) -> None:
    """ValueError for a pipeline that a device of this profile can't have."""
    what, code = f"pipeline {request.name!r}", request.spirv
    if len(code) < 20 or len(code) % 4 or int.from_bytes(code[:4], "little") != _SPIRV_MAGIC:
        raise ValueError(f"{what}: not a SPIR-V module ({len(code)} bytes)")
    limit = min(profile.max_storage_buffers_per_stage, profile.max_storage_buffers_per_set)
    if request.binding_count > limit:
        raise ValueError(f"{what}: {request.binding_count} storage buffers, the device binds at "
                         f"most {limit}")
    if request.texels and "texel_buffers" not in profile.features:
        raise ValueError(f"{what}: uniform texel buffers, which the device does not have")
    if any(not 0 <= binding < request.binding_count or form not in TEXEL_BYTES
           for binding, form in request.texels):
        raise ValueError(f"{what}: texels {request.texels}; bindings below "
                         f"{request.binding_count} of {', '.join(TEXEL_BYTES)} are possible")
    if request.push_size % 4 or not 0 <= request.push_size <= profile.max_push_constants_size:
        raise ValueError(f"{what}: {request.push_size} bytes of push constants, a multiple of 4 up "
                         f"to {profile.max_push_constants_size} is possible")
    size = request.subgroup_size
    if size and ("subgroup_size_control" not in profile.features or size & (size - 1)
                 or not profile.min_subgroup_size <= size <= profile.max_subgroup_size):
        raise ValueError(f"{what}: the device can't run it with subgroups of {size}")
    if any(len(value) != 4 for _, value in request.constants):
        raise ValueError(f"{what}: specialisation constants have 4 bytes each")


def check_submitted(value: int, last: int) -> None:
    """ValueError for a timeline value after the ``last`` one submitted."""
    if value > last:
        raise ValueError(f"timeline value {value} was never submitted; the last is {last}")


def check_command(command: Command, profile: DeviceProfile) -> None:
    """ValueError for a command that leaves its memory or exceeds the device, and for a facet's
    commands, which the driver with that facet checks; TypeError for anything but a command."""
    match command:
        case DispatchCommand():
            _check_dispatch(command, profile)
        case CopyCommand():
            check_within("copy source", command.source, command.source_offset, command.size)
            check_within("copy destination", command.destination, command.destination_offset,
                         command.size)
        case FillCommand():
            check_within("fill", command.destination, command.offset, command.size)
            if command.offset % 4 or command.size % 4:
                raise ValueError(f"fill: offset {command.offset} and size {command.size} must be "
                                 "multiples of 4")
        case BarrierCommand():
            pass
        case TimestampCommand() | ResolveCommand():
            raise ValueError("the driver has no timestamps")
        case OwnershipCommand():
            raise ValueError("the driver shares no memory")
        case _:
            raise TypeError(f"not a command: {command!r}")


def check_within(what: str, allocation: Allocation, offset: int, size: int) -> None:
    """ValueError unless `size` bytes from `offset` on, more than none, lie in an allocation that
    was not freed."""
    if allocation.freed:
        raise ValueError(f"{what}: {allocation!r} was freed")
    if offset < 0 or size < 1 or offset + size > allocation.size:
        raise ValueError(f"{what}: bytes {offset} to {offset + size} are outside of {allocation!r}")


def _check_dispatch(command: DispatchCommand, profile: DeviceProfile) -> None:
    request = command.pipeline.request
    what = f"dispatch of {request.name!r}"
    if len(command.bindings) != request.binding_count:
        raise ValueError(f"{what}: {len(command.bindings)} bindings, the pipeline has "
                         f"{request.binding_count}")
    if len(command.push) != request.push_size:
        raise ValueError(f"{what}: {len(command.push)} bytes of push constants, the pipeline has "
                         f"{request.push_size}")
    if any(not 0 <= count <= limit for count, limit
           in zip(command.groups, profile.max_workgroup_count, strict=True)):
        raise ValueError(f"{what}: {command.groups} workgroups, the device runs at most "
                         f"{profile.max_workgroup_count}")
    texels = dict(request.texels)
    for index, (allocation, offset, size) in enumerate(command.bindings):
        place = f"{what}, binding {index}"
        check_within(place, allocation, offset, size)
        if index not in texels and size > profile.max_storage_buffer_range:
            raise ValueError(f"{place}: {size} bytes, the device binds at most "
                             f"{profile.max_storage_buffer_range}")
        if profile.whole_bindings and offset:
            raise ValueError(f"{place}: offset {offset}, but the driver binds allocations from "
                             "their first byte on")
        start = allocation.offset + offset
        if start % profile.min_storage_buffer_offset_alignment:
            raise ValueError(f"{place}: offset {offset} is not a multiple of "
                             f"{profile.min_storage_buffer_offset_alignment}")
        if index in texels:
            _check_texels(place, start, size, TEXEL_BYTES[texels[index]], profile)


def _check_texels(place: str, offset: int, size: int, texel: int, profile: DeviceProfile) -> None:
    most = profile.max_texel_buffer_elements
    if size % texel or size // texel > most:
        raise ValueError(f"{place}: {size} bytes; texels of {texel} bytes, at most {most}, are "
                         "possible")
    step = max(profile.min_texel_buffer_offset_alignment, texel)
    if offset % step:
        raise ValueError(f"{place}: a texel buffer's offset is a multiple of {step}")

"""Requests that are refused before a driver calls Vulkan, and their messages."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver import (
    CopyCommand,
    DispatchCommand,
    FillCommand,
    OwnershipCommand,
    PipelineRequest,
    ResolveCommand,
    TimestampCommand,
)
from webnn_vk.driver.checks import check_command, check_pipeline

PROFILE = stored_profile().replace(
    max_storage_buffer_range=4096, min_storage_buffer_offset_alignment=64,
    max_texel_buffer_elements=32, min_texel_buffer_offset_alignment=64, whole_bindings=False,
    max_storage_buffers_per_stage=8, max_storage_buffers_per_set=6, max_push_constants_size=128,
    max_workgroup_count=(100, 100, 100), min_subgroup_size=4, max_subgroup_size=32,
    features=stored_profile().features | {"texel_buffers", "subgroup_size_control"},
)
MODULE = b"\x03\x02\x23\x07" + bytes(16)


@dataclass
class Memory:
    size: int
    offset: int = 0
    freed: bool = False
    mapped: None = None

    def __repr__(self) -> str:
        return f"<{self.size} bytes>"


@dataclass
class Compiled:
    request: PipelineRequest


def request(**changes: Any) -> PipelineRequest:
    given: dict[str, Any] = {"spirv": MODULE, "binding_count": 2, "push_size": 8, "name": "scale"}
    return PipelineRequest(**{**given, **changes})


DATA, SHIFTED, GONE = Memory(1024), Memory(1024, offset=32), Memory(1024, freed=True)
LARGE = Memory(8192)


@pytest.mark.parametrize(("changes", "message"), [
    ({"spirv": b""}, r"not a SPIR-V module \(0 bytes\)"),
    ({"spirv": b"text that is no SPIR-V.."}, "not a SPIR-V module"),
    ({"spirv": MODULE[:-1]}, r"not a SPIR-V module \(19 bytes\)"),
    ({"binding_count": 7}, "7 storage buffers, the device binds at most 6"),
    ({"push_size": 6}, "6 bytes of push constants, a multiple of 4 up to 128 is possible"),
    ({"push_size": 132}, "132 bytes of push constants"),
    ({"push_size": -4}, "-4 bytes of push constants"),
    ({"subgroup_size": 3}, "subgroups of 3"),
    ({"subgroup_size": 64}, "subgroups of 64"),
    ({"constants": ((0, b"\0\0"),)}, "specialisation constants have 4 bytes each"),
    ({"texels": ((2, "rgba32f"),)}, "bindings below 2 of r32f"),
    ({"texels": ((0, "r8"),)}, "bindings below 2 of r32f"),
])
def test_bad_pipelines(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"pipeline 'scale': .*{message}"):
        check_pipeline(request(**changes), PROFILE)


def test_what_a_device_must_have() -> None:
    texels, subgroups = request(texels=((0, "rgba32f"),)), request(subgroup_size=8)
    check_pipeline(texels, PROFILE)
    check_pipeline(subgroups, PROFILE)
    less = PROFILE.masked(["texel_buffers", "subgroup_size_control"])
    with pytest.raises(ValueError, match="texel buffers, which the device does not have"):
        check_pipeline(texels, less)
    with pytest.raises(ValueError, match="subgroups of 8"):
        check_pipeline(subgroups, less)


def dispatch(binding: tuple[Any, int, int] = (DATA, 0, 512), *, bindings: int = 2,
             push: bytes = bytes(8), groups: tuple[int, int, int] = (1, 1, 1),
             **changes: Any) -> DispatchCommand:
    return DispatchCommand(Compiled(request(**changes)), (binding,) * bindings, push, groups)


TEXELS = ((0, "rgba32f"),)


@pytest.mark.parametrize(("command", "message"), [
    (dispatch(bindings=1), "dispatch of 'scale': 1 bindings, the pipeline has 2"),
    (dispatch(push=bytes(4)), "4 bytes of push constants, the pipeline has 8"),
    (dispatch(groups=(101, 1, 1)), "workgroups, the device runs at most"),
    (dispatch(groups=(1, 1, -1)), "workgroups, the device runs at most"),
    (dispatch((DATA, 0, 2048)), "binding 0: bytes 0 to 2048 are outside of <1024 bytes>"),
    (dispatch((DATA, 0, 0)), "binding 0: bytes 0 to 0 are outside of"),
    (dispatch((DATA, -256, 512)), "binding 0: bytes -256 to 256 are outside of"),
    (dispatch((DATA, 1, 512)), "binding 0: offset 1 is not a multiple of 64"),
    (dispatch((SHIFTED, 0, 512)), "binding 0: offset 0 is not a multiple of 64"),
    (dispatch((LARGE, 0, 4100)), "binding 0: 4100 bytes, the device binds at most 4096"),
    (dispatch((GONE, 0, 512)), "binding 0: <1024 bytes> was freed"),
    (dispatch((DATA, 0, 24), texels=TEXELS), "24 bytes; texels of 16 bytes, at most 32"),
    (dispatch((DATA, 0, 528), texels=TEXELS), "528 bytes; texels of 16 bytes"),
    (CopyCommand(DATA, 0, DATA, 512, 513), "copy destination: bytes 512 to 1025 are outside of"),
    (CopyCommand(DATA, 1020, DATA, 0, 8), "copy source: bytes 1020 to 1028 are outside of"),
    (CopyCommand(DATA, 0, GONE, 0, 8), "copy destination: <1024 bytes> was freed"),
    (FillCommand(DATA, 1020, 8), "fill: bytes 1020 to 1028 are outside of"),
    (FillCommand(DATA, 2, 4), "fill: offset 2 and size 4 must be multiples of 4"),
    (FillCommand(DATA, 4, 2), "fill: offset 4 and size 2 must be multiples of 4"),
    (TimestampCommand(0), "no timestamps"),
    (ResolveCommand(None, 0, 1, DATA, 0), "no timestamps"),
    (OwnershipCommand(DATA, True), "shares no memory"),
])
def test_bad_commands(command: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        check_command(command, PROFILE)


def test_good_commands() -> None:
    for command in (
        dispatch(), dispatch((DATA, 64, 960)), dispatch((Memory(512, offset=64), 0, 512)),
        dispatch((LARGE, 4096, 4096)), dispatch((DATA, 64, 512), texels=TEXELS),
        dispatch(groups=(100, 0, 100)), CopyCommand(DATA, 1, SHIFTED, 3, 1021),
        FillCommand(DATA, 1020, 4),
    ):
        check_command(command, PROFILE)


def test_texels_have_a_range_of_their_own() -> None:
    many = PROFILE.replace(max_texel_buffer_elements=512)
    both = (*TEXELS, (1, "r32f"))
    check_command(dispatch((LARGE, 0, 8192), texels=both),
                  many.replace(max_texel_buffer_elements=2048))
    with pytest.raises(ValueError, match="8192 bytes, the device binds at most 4096"):
        check_command(dispatch((LARGE, 0, 8192)), many)
    with pytest.raises(ValueError, match="8192 bytes; texels of 16 bytes, at most 511"):
        check_command(dispatch((LARGE, 0, 8192), texels=both),
                      many.replace(max_texel_buffer_elements=511))


def test_texels_have_an_alignment_of_their_own() -> None:
    profile = PROFILE.replace(min_storage_buffer_offset_alignment=16)
    check_command(dispatch((DATA, 16, 512)), profile)
    with pytest.raises(ValueError, match="a texel buffer's offset is a multiple of 64"):
        check_command(dispatch((DATA, 16, 512), texels=TEXELS), profile)


def test_allocations_bound_from_their_first_byte_on() -> None:
    with pytest.raises(ValueError, match="offset 64, but the driver binds allocations from their"):
        check_command(dispatch((DATA, 64, 512)), PROFILE.replace(whole_bindings=True))


def test_what_is_no_command() -> None:
    with pytest.raises(TypeError, match="not a command: 3"):
        check_command(3, PROFILE)  # type: ignore[arg-type]

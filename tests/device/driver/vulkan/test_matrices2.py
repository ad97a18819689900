"""VK_NV_cooperative_matrix2 as a driver describes it, and as a device enables it. No driver here
has it: its structures follow the extension's C declarations."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from webnn_vk.driver.device_profile import FlexibleMatrix
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan import matrices2, snapshot
from webnn_vk.driver.vulkan.driver import open_driver
from webnn_vk.driver.vulkan.errors import VulkanError

KHR = "VK_KHR_cooperative_matrix"
NEEDED = {
    "cooperativeMatrixWorkgroupScope", "cooperativeMatrixFlexibleDimensions",
    "cooperativeMatrixPerElementOperations", "cooperativeMatrixTensorAddressing",
}
_FLOAT16, _FLOAT32, _BFLOAT16 = 0, 1, 1000141000
_WORKGROUP, _SUBGROUP = 2, 3
# M, N and K granularity, four types, saturating, scope, invocations.
ROWS = (
    (32, 16, 16, _FLOAT16, _FLOAT16, _FLOAT32, _FLOAT32, 0, _WORKGROUP, 128),
    (32, 32, 16, _FLOAT16, _FLOAT16, _FLOAT16, _FLOAT16, 1, _WORKGROUP, 256),
    (16, 16, 16, _FLOAT16, _FLOAT16, _FLOAT32, _FLOAT32, 0, _SUBGROUP, 0),
    (32, 16, 16, _BFLOAT16, _BFLOAT16, _FLOAT32, _FLOAT32, 0, _WORKGROUP, 128),
    (32, 32, 16, _FLOAT16, _FLOAT16, _FLOAT32, _FLOAT32, 0, _WORKGROUP, 1024),
)
MATRICES = (
    FlexibleMatrix(32, 16, 16, "float16", "float16", "float32", "float32", 128),
    FlexibleMatrix(32, 32, 16, "float16", "float16", "float16", "float16", 256, True),
)


def _bytes(pointer: Any, size: int) -> Any:
    return vk.ffi.buffer(vk.ffi.cast("char *", pointer), size)


class Listing:
    """The driver's function, which reports this many rows at each call."""

    def __init__(self, *counts: int) -> None:
        self.counts = list(counts)

    def __call__(self, device: Any, count: Any, rows: Any) -> int:
        there = self.counts.pop(0) if len(self.counts) > 1 else self.counts[0]
        if rows == vk.NULL:
            count[0] = there
            return 0
        room = count[0]
        for i in range(min(there, room)):
            at = _bytes(vk.ffi.cast("char *", rows) + 56 * i, 56)
            stype, gap, following = struct.unpack_from("<iiQ", at)
            assert (stype, gap, following) == (1000593001, 0, 0)
            struct.pack_into("<10I", at, 16, *ROWS[i])
        count[0] = min(there, room)
        return 5 if room < there else 0  # VK_INCOMPLETE


@pytest.mark.parametrize("counts", [(5,), (3, 5, 5), (5, 4)], ids=str)
def test_matrices_of_workgroups_are_listed(counts, monkeypatch) -> None:
    """Matrices have known types, for workgroups that the device supports; the number may change."""
    monkeypatch.setattr(matrices2, "_function", lambda instance: Listing(*counts))
    types = {_FLOAT16: "float16", _FLOAT32: "float32"}
    assert matrices2.flexible_matrices(None, None, types, 512) == MATRICES
    monkeypatch.setattr(matrices2, "_function", lambda instance: None)
    assert matrices2.flexible_matrices(None, None, types, 512) == ()


def test_a_driver_that_fails_or_never_ends(monkeypatch) -> None:
    monkeypatch.setattr(matrices2, "_function", lambda instance: lambda *_: -3)
    with pytest.raises(VulkanError, match="FlexibleDimensions.*VK_ERROR_INITIALIZATION_FAILED"):
        matrices2.flexible_matrices(None, None, {}, 512)
    monkeypatch.setattr(matrices2, "_function", lambda instance: Listing(*[3, 5] * 100))
    with pytest.raises(VulkanError, match="changes all the time"):
        matrices2.flexible_matrices(None, None, {}, 512)


def _chained(first: Any) -> Iterator[Any]:
    link = vk.ffi.cast("VkBaseOutStructure *", first)
    while link != vk.NULL:
        yield link
        link = link.pNext


class Library:
    """The loader's library, for a driver that has both extensions: it fills in their structs."""

    def __init__(self, lib: Any, booleans: tuple[int, ...]) -> None:
        self._lib, self._booleans = lib, booleans

    def __getattr__(self, name: str) -> Any:
        return getattr(self._lib, name)

    def _answer(self, name: str, handle: Any, first: Any, answers: dict[int, bytes]) -> None:
        before = None
        for link in list(_chained(first)):
            if link.sType in answers:
                data = answers[link.sType]
                _bytes(link, 16 + len(data))[16 : 16 + len(data)] = data
                before.pNext = link.pNext  # the real driver knows nothing of it
            else:
                before = link
        getattr(self._lib, name)(handle, first)

    def vkGetPhysicalDeviceFeatures2(self, handle: Any, first: Any) -> None:
        khr = vk.const("VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR")
        self._answer("vkGetPhysicalDeviceFeatures2", handle, first, {
            khr: struct.pack("<2I", 1, 0), 1000593000: struct.pack("<7I", *self._booleans),
        })

    def vkGetPhysicalDeviceProperties2(self, handle: Any, first: Any) -> None:
        self._answer("vkGetPhysicalDeviceProperties2", handle, first, {
            1000593002: struct.pack("<3I", 512, 1024, 16384),
        })


# workgroup scope, flexible dimensions, reductions, conversions, per element, tensors, block loads
@pytest.mark.parametrize("booleans, there", [
    ((1, 1, 1, 1, 1, 1, 1), True), ((1, 1, 0, 0, 1, 1, 0), True), ((0, 1, 1, 1, 1, 1, 1), False),
    ((1, 0, 1, 1, 1, 1, 1), False), ((1, 1, 1, 1, 0, 1, 1), False),
    ((1, 1, 1, 1, 1, 0, 1), False), ((0,) * 7, False),
], ids=str)
def test_the_snapshot(physical, booleans, there: bool, monkeypatch) -> None:
    monkeypatch.setattr(vk, "lib", Library(vk.lib, booleans))
    monkeypatch.setattr(matrices2, "_function", lambda instance: Listing(5))
    monkeypatch.setattr(snapshot, "_cooperative_matrices", lambda owner, handle: ())
    extensions = physical.extensions | {KHR, matrices2.EXTENSION}
    owner = physical.owner
    profile = snapshot._profile(owner, physical.handle, extensions, 64)
    assert ("cooperative_matrix2" in profile.features) == there
    assert "cooperative_matrix" in profile.features
    assert profile.flexible_matrices == (MATRICES if there else ())
    assert profile.max_flexible_dimension == (1024 if there else 0)
    if there:
        # Without the extension it depends on, or on Vulkan 1.2, there is none.
        for without, version in (({KHR}, owner.api_version), (set(), (1, 2, 0))):
            older = SimpleNamespace(handle=owner.handle, api_version=version)
            less = snapshot._profile(older, physical.handle, extensions - without, 64)
            assert "cooperative_matrix2" not in less.features and not less.flexible_matrices


def _asked_for(physical, mask: list[str], monkeypatch) -> tuple[set[str], set[str] | None]:
    """The extensions that a device enables, and the members of the struct of features."""
    extensions: set[str] = set()
    members: list[set[str] | None] = [None]

    def refuse(call, parent, info, handle):
        names = info.ppEnabledExtensionNames
        extensions.update(vk.text(names[i]) for i in range(info.enabledExtensionCount))
        for link in _chained(info.pNext):
            if link.sType == 1000593000:
                values = struct.unpack_from("<7I", _bytes(link, 44), 16)
                pairs = zip(matrices2.MEMBERS, values, strict=True)
                members[0] = {name for name, value in pairs if value}
        raise VulkanError("refused", "VK_ERROR_FEATURE_NOT_PRESENT")

    features = physical.profile.features | {"cooperative_matrix", "cooperative_matrix2"}
    profile = physical.profile.replace(features=features)
    monkeypatch.setattr(vk, "create", refuse)
    with pytest.raises(VulkanError, match="refused"):
        open_driver(replace(physical, profile=profile), profile=profile.masked(mask))
    monkeypatch.undo()
    return extensions, members[0]


def test_a_device_is_asked_for_what_kernels_use(physical, monkeypatch) -> None:
    extensions, members = _asked_for(physical, [], monkeypatch)
    assert {KHR, matrices2.EXTENSION} <= extensions and members == NEEDED
    extensions, members = _asked_for(physical, ["cooperative_matrix2"], monkeypatch)
    assert KHR in extensions and matrices2.EXTENSION not in extensions and members is None
    extensions, members = _asked_for(physical, ["cooperative_matrix"], monkeypatch)
    assert not {KHR, matrices2.EXTENSION} & extensions and members is None

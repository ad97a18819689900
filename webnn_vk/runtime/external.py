"""Memory and semaphores that two opened devices of one machine share."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from webnn_vk.driver import (
    DeviceLost,
    DriverClosed,
    ExternalMemory,
    FeatureMissing,
    OwnershipCommand,
    sharing_of,
)

from .driver_memory import DriverMemory
from .storage import Storage

MEMORY_FEATURE = "external_memory_fd"


def shares_memory(device: DriverMemory) -> bool:
    """Whether the device can export and import memory."""
    return device.driver.sharing is not None and MEMORY_FEATURE in device.profile.features


def why_not_shared(device: DriverMemory) -> str:
    """Why a device shares no memory, for messages."""
    if device.driver.sharing is None:
        return device.driver.absent.get("sharing") or "its driver shares no memory"
    return "its driver has no VK_KHR_external_memory_fd"


def export_memory(device: DriverMemory, storage: Storage) -> ExternalMemory:
    """An exportable storage's memory as a file descriptor that the caller owns."""
    return sharing_of(device.driver).export_memory(storage.backing)


def share_memory(source: DriverMemory, storage: Storage, target: DriverMemory) -> Storage:
    """``target``'s own storage over the memory of an exportable storage of ``source``."""
    return _handed_over(
        export_memory(source, storage),
        lambda external: target.adopt(
            storage.size, sharing_of(target.driver).import_memory(external, label="shared tensor")
        ),
    )


def share_semaphore(source: DriverMemory, target: DriverMemory) -> tuple[Any, Any] | None:
    """One timeline semaphore as seen by both devices, or None if that is impossible."""
    try:
        semaphore = sharing_of(source.driver).semaphore(exportable=True)
    except FeatureMissing:
        return None
    return semaphore, _handed_over(
        sharing_of(source.driver).export_semaphore(semaphore),
        sharing_of(target.driver).import_semaphore,
    )


def stop_waits(semaphore: Any, value: int) -> None:
    """Release waits for ``value``; on a closed or lost device nothing waits."""
    with suppress(DeviceLost, DriverClosed):
        if semaphore.value() < value:
            semaphore.signal(value)


def ownership(device: DriverMemory, storage: Storage) -> tuple[Any, Any]:
    """Recordings that release shared memory to the other device and acquire it from there."""
    release, acquire = (
        device.driver.record([OwnershipCommand(storage.backing, acquire)])
        for acquire in (False, True)
    )
    return release, acquire


def _handed_over(external: Any, take: Callable[[Any], Any]) -> Any:
    try:
        return take(external)
    except BaseException:
        # Only a successful import takes ownership of the file descriptor.
        os.close(external.fd if isinstance(external, ExternalMemory) else external)
        raise

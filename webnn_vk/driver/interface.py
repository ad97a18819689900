"""`Driver`: an opened compute device with one in-order queue.

The layers above are the same for every driver.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

from webnn_vk.driver.commands import Command
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.errors import FeatureMissing
from webnn_vk.driver.facets import DirectSubmits, Sharing, Timestamps
from webnn_vk.driver.resources import (
    Allocation,
    HostAccess,
    MemoryUse,
    Pipeline,
    PipelineRequest,
    Recording,
    Semaphore,
)


@runtime_checkable
class Driver(Protocol):
    """One opened device with one in-order queue. Every method may be called from any thread.

    Methods raise `errors.DriverError`s: DeviceLost once the device is lost, DriverClosed after
    `close`, ForkedProcess in a forked child. Other errors of an
    implementation are DriverErrors too.
    """

    profile: DeviceProfile
    #: Facets: None where the driver has none (`sharing_of`, `timestamps_of`).
    sharing: Sharing | None
    timestamps: Timestamps | None
    direct: DirectSubmits | None
    #: Why a facet is None, by its name, for messages.
    absent: Mapping[str, str]

    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 host_access: HostAccess = "", label: str = "") -> Allocation:
        """`size` bytes of device memory (host: of memory for transfers, mapped), contents
        undefined. Raises OutOfDeviceMemory.

        host_access: what the host does with memory that kernels use, which then is mapped, and
        cached if the host reads it, where the device has such memory.
        exportable: for `Sharing.export_memory`; FeatureMissing where that can't be.
        """

    def pipelines(self, requests: Sequence[PipelineRequest]) -> list[Pipeline]:
        """The pipelines of modules and constants, from the driver's cache or compiled now, in
        parallel. Raises ValueError for a request that the device can't serve."""

    def precompile(self, pipelines: Sequence[Pipeline]) -> int:
        """Has the device compile pipelines now, where it would otherwise do so at their first use,
        by empty dispatches. Returns the timeline value at which all are compiled."""

    def record(self, commands: Sequence[Command]) -> Recording:
        """Records commands. A full barrier goes first."""

    def submit(self, recordings: Sequence[Recording], *,
               wait: Sequence[tuple[Semaphore, int]] = (),
               signal: Sequence[tuple[Semaphore, int]] = ()) -> int:
        """Submits recordings, in order, and returns the timeline value that marks their end.

        They start when all `wait` values are reached, which the host may signal later; the
        submissions behind them wait too. At the end the host sees all writes, and the `signal`
        values and the timeline's are reached, in no order. Non-blocking. Semaphores come from the
        `Sharing` facet.
        """

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until the submission of that timeline value is done; False after `timeout` s."""

    def completed(self) -> int:
        """The timeline value reached: all submissions up to it are done."""

    def submitted(self) -> int:
        """The timeline value of the last submission (0: none)."""

    def memory_in_use(self) -> MemoryUse:
        """Memory held by this driver."""

    def reclaim(self, *, pipelines: bool = True) -> None:
        """Returns unused memory to the system, caches included; `pipelines`: the cache of
        pipelines too. Does nothing once closed or lost."""

    def lost(self) -> str | None:
        """Why the device is lost, or None."""

    def close(self) -> None:
        """Waits for the work in flight (at most some seconds) and releases everything."""


def sharing_of(driver: Driver) -> Sharing:
    """The driver's facet; FeatureMissing when it has none."""
    if driver.sharing is None:
        raise FeatureMissing(f"the driver of {driver.profile.name} shares no memory or semaphores"
                             + _reason(driver, "sharing"))
    return driver.sharing


def timestamps_of(driver: Driver) -> Timestamps:
    """The driver's facet; FeatureMissing when it has none."""
    if driver.timestamps is None:
        raise FeatureMissing(f"the driver of {driver.profile.name} writes no timestamps"
                             + _reason(driver, "timestamps"))
    return driver.timestamps


def _reason(driver: Driver, facet: str) -> str:
    reason = driver.absent.get(facet)
    return f": {reason}" if reason else ""

"""The driver interface: what `runtime/` needs of a compute device, and the commands as plain data.

`device.VulkanDriver` is the implementation. Tests inject faults by wrapping a driver, and a second
driver fits in here without anything above noticing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

from webnn_vk.device_profile import DeviceProfile
from webnn_vk.vulkan.external import ExternalMemory
from webnn_vk.vulkan.memory import Allocation, MemoryUse


@dataclass(frozen=True)
class PipelineRequest:
    """A compute pipeline to be made of a SPIR-V module.

    binding_count: storage buffers at bindings 0, 1, … of set 0. push_size: bytes of push constants.
    constants: (id, 4 bytes) per specialisation constant. subgroup_size: required size, 0: any.
    """

    spirv: bytes
    binding_count: int
    push_size: int = 0
    constants: tuple[tuple[int, bytes], ...] = ()
    name: str = ""
    subgroup_size: int = 0
    entry_point: str = "main"


class Pipeline(Protocol):
    """A compiled pipeline. `request` is what it was made from."""

    request: PipelineRequest


class Recording(Protocol):
    """Recorded commands that can be submitted any number of times, also while still pending.

    Owns its descriptors and keeps its allocations and pipelines alive. Released by `free` (which
    waits for nothing: the driver keeps what is in flight) or when collected.
    """

    def free(self) -> None:
        """Releases it once its last submission is done. Calling it again does nothing."""


class Semaphore(Protocol):
    """A timeline semaphore that both host and device can wait for and signal."""

    def value(self) -> int:
        """The current value."""

    def signal(self, value: int) -> None:
        """Sets a value greater than the current one, from the host."""

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until the value is reached; False after `timeout` seconds."""

    def close(self) -> None:
        """Releases it once no submission uses it any more."""


@dataclass(frozen=True, slots=True)
class DispatchCommand:
    """Runs a pipeline over `groups` workgroups. bindings: (allocation, offset, size) in bytes."""

    pipeline: Pipeline
    bindings: tuple[tuple[Allocation, int, int], ...]
    push: bytes = b""
    groups: tuple[int, int, int] = (1, 1, 1)


@dataclass(frozen=True, slots=True)
class CopyCommand:
    """Copies `size` bytes between allocations (not overlapping)."""

    source: Allocation
    source_offset: int
    destination: Allocation
    destination_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class FillCommand:
    """Fills `size` bytes (offset and size multiples of 4) with a 32-bit value."""

    destination: Allocation
    offset: int
    size: int
    value: int = 0


@dataclass(frozen=True, slots=True)
class BarrierCommand:
    """All writes before are visible to all reads and writes after (compute and transfer)."""


@dataclass(frozen=True, slots=True)
class OwnershipCommand:
    """Hands memory shared by `export_memory` over to its other device, or takes it over from there
    (`acquire`). Orders nothing by itself: semaphores or host waits do."""

    allocation: Allocation
    acquire: bool


@dataclass(frozen=True, slots=True)
class TimestampCommand:
    """Writes the device's time, when all commands before are done, into slot `index`."""

    index: int


Command = (DispatchCommand | CopyCommand | FillCommand | BarrierCommand | OwnershipCommand
           | TimestampCommand)


@runtime_checkable
class Driver(Protocol):
    """One opened device with one in-order queue. Every method may be called from any thread.

    Methods raise `errors.VulkanError`s: DeviceLost once the device is lost, DriverClosed after
    `close`, ForkedProcess in a forked child, ValidationError when the validation layer has spoken.
    """

    profile: DeviceProfile

    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 label: str = "") -> Allocation:
        """`size` bytes of device memory (host: of memory for transfers, mapped), contents
        undefined. Raises OutOfDeviceMemory.

        exportable: for `export_memory`; ExtensionMissing where that can't be.
        """

    def export_memory(self, allocation: Allocation) -> ExternalMemory:
        """An exportable allocation as a file descriptor that the caller owns. The memory lives as
        long as one of its users."""

    def import_memory(self, external: ExternalMemory, *, label: str = "") -> Allocation:
        """An allocation over memory that another driver of the same device exported (whose work is
        ordered with this driver's by host waits). Takes the file descriptor over on success.
        ValueError when it is another device's."""

    def import_host_memory(self, buffer: Any, *, label: str = "") -> Allocation:
        """An allocation over the pages of a buffer-protocol object, without a copy. The object is
        kept and must not move; whoever made it read-only must not let the device write to it. The
        allocation starts at the buffer's first byte and ends with its last page. Raises
        ExtensionMissing where the device can't."""

    def pipeline(self, spirv: bytes, *, binding_count: int, push_size: int = 0,
                 constants: tuple[tuple[int, bytes], ...] = (), name: str = "",
                 subgroup_size: int = 0) -> Pipeline:
        """The pipeline of a module and constants, from the driver's cache or compiled now."""

    def pipelines(self, requests: Sequence[PipelineRequest]) -> list[Pipeline]:
        """Several pipelines at once, compiled in parallel."""

    def precompile(self, pipelines: Sequence[Pipeline]) -> int:
        """Has the device compile pipelines now, where it would otherwise do so at their first use:
        one submit of empty dispatches. Returns its timeline value without waiting."""

    def record(self, commands: Sequence[Command]) -> Recording:
        """Records commands. A full barrier goes first."""

    def submit(self, recordings: Sequence[Recording], *,
               wait: Sequence[tuple[Semaphore, int]] = (),
               signal: Sequence[tuple[Semaphore, int]] = ()) -> int:
        """Submits recordings, in order, and returns the timeline value that marks their end.

        They start when all `wait` values are reached, which the host may signal later; the
        submissions behind them wait too. At the end the host sees all writes, and the `signal`
        values and the timeline's are reached, in no order. Non-blocking.
        """

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until the submission of that timeline value is done; False after `timeout` s."""

    def completed(self) -> int:
        """The timeline value reached: all submissions up to it are done."""

    def submitted(self) -> int:
        """The timeline value of the last submission (0: none)."""

    def semaphore(self, *, exportable: bool = False) -> Semaphore:
        """A new timeline semaphore with value 0. exportable: for `export_semaphore`;
        ExtensionMissing where that can't be."""

    def export_semaphore(self, semaphore: Semaphore) -> int:
        """An exportable semaphore as a file descriptor that the caller owns."""

    def import_semaphore(self, fd: int) -> Semaphore:
        """A semaphore that another driver of the same device exported: one value for both. Takes
        the file descriptor over on success. ExtensionMissing where that can't be."""

    def timestamps(self, recording: Recording) -> list[int]:
        """Times in ns in the slots of a recording's last, completed, submission."""

    def memory_in_use(self) -> MemoryUse:
        """Memory held by this driver."""

    def lost(self) -> str | None:
        """Why the device is lost, or None."""

    def close(self) -> None:
        """Waits for the work in flight (at most some seconds) and releases everything."""


class DriverProxy:
    """Passes everything on to another driver: the base of drivers that inject faults or count."""

    def __init__(self, driver: Driver) -> None:
        self.driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self.driver, name)

"""Facets: what only some drivers can do. A driver that has a facet declares it by an attribute that
is not None. `interface.sharing_of` and `timestamps_of` return it, or raise with the reason.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from webnn_vk.driver.direct import Turn
from webnn_vk.driver.resources import Allocation, ExternalMemory, Queries, Recording, Semaphore


class Sharing(Protocol):
    """Memory and semaphores shared with other opened devices, CUDA, other processes, or the host.
    Each method raises FeatureMissing if the device lacks what it needs.

    `commands.OwnershipCommand` transfers memory to another device and back; a submission waits
    for and signals semaphores (`Driver.submit`).
    """

    def export_memory(self, allocation: Allocation) -> ExternalMemory:
        """An exportable allocation (`Driver.allocate`) as a file descriptor that the caller owns.
        The memory lives until its last user releases it."""

    def import_memory(self, external: ExternalMemory, *, label: str = "") -> Allocation:
        """An allocation over memory that another driver of the same device exported (whose work is
        ordered with this driver's by host waits). Takes the file descriptor over on success.
        ValueError when it is another device's."""

    def import_host_memory(self, buffer: Any, *, label: str = "") -> Allocation:
        """An allocation over the pages of a buffer-protocol object, without a copy. The object is
        kept and must not move; if it is read-only, the device must not write to it. The
        allocation starts at the buffer's first byte and ends with its last page."""

    def semaphore(self, *, exportable: bool = False) -> Semaphore:
        """A new timeline semaphore with value 0. exportable: for `export_semaphore`."""

    def export_semaphore(self, semaphore: Semaphore) -> int:
        """An exportable semaphore as a file descriptor that the caller owns."""

    def import_semaphore(self, fd: int) -> Semaphore:
        """A semaphore that another driver of the same device exported: one value for both. Takes
        the file descriptor over on success."""


class Timestamps(Protocol):
    """Times that `commands.TimestampCommand` writes."""

    def read(self, recording: Recording) -> list[int]:
        """Times in ns in the slots of a recording's last, completed, submission. ValueError while
        it is not completed."""

    def queries(self, count: int) -> Queries:
        """`count` new, empty slots that recordings share. Submits a command that clears them,
        without waiting."""


class DirectSubmits(Protocol):
    """Submits that any thread may make without a lock, the main thread included: `driver.direct`.
    `open` and `close` are for the thread that otherwise submits."""

    def prepare(self, recordings: Sequence[Recording]) -> Any:
        """Recordings to be submitted by one thread at a time, again and again, each time once they
        are done. Freed by garbage collection, once no submission uses it."""

    def open(self) -> tuple[int, int]:
        """Allows direct submits; the timeline value of the last submission, and the number of turns
        taken so far."""

    def close(self) -> tuple[int, int]:
        """No more direct submits; the same as ``open``."""

    def turn(self) -> Turn | None:
        """The next direct submit, with its timeline value; None if there is none now."""

    def submit(self, turn: Turn, prepared: Any) -> bool:
        """Submits; False if another thread has used the turn, or the submit failed for lack of
        memory. DeviceLost."""

    def completed(self) -> int:
        """The timeline value reached; at once. DeviceLost."""

    def wait(self, value: int, timeout: float | None = None) -> bool:
        """Waits until it is done; False after `timeout` s. DeviceLost."""

"""``GPUSemaphore``: a device's order of work, shared with CUDA, another device or process."""

from __future__ import annotations

import operator
import threading
from typing import Any

from webnn_vk.driver import DriverError, FeatureMissing, sharing_of
from webnn_vk.runtime.external import stop_waits
from webnn_vk.runtime.stream import Stream
from webnn_vk.runtime.work import Submit
from webnn_vk.support import background
from webnn_vk.support.errors import NotSupportedError, OperationError
from webnn_vk.support.mixins import OneOfAKind, PublicDir


class GPUSemaphore(PublicDir, OneOfAKind):
    """A timeline semaphore whose value both sides see; made by ``create_exportable_semaphore`` of
    a context or a GPUDevice. The value starts at 0 and only grows.

        context.dispatch(…)                  # writes a tensor whose memory the other side has
        semaphore.enqueue_signal(1)          # … which there waits for 1, works, and signals 2
        semaphore.enqueue_wait(2)
        context.dispatch(…)                  # sees what the other side wrote

    No method blocks the caller. If a value is never signalled, all work after the wait for it is
    blocked, and so is the device's end.
    """

    def __init__(self, stream: Stream, what: str) -> None:
        device: Any = stream.device
        self._stream = stream
        if device.profile is None:
            raise NotSupportedError(f"{what}: the CPU device has no semaphores")
        with stream.timeline.building():
            try:
                self._native = sharing_of(device.driver).semaphore(exportable=True)
            except FeatureMissing as error:
                raise NotSupportedError(f"{what}: {error}") from None
            except DriverError as error:
                raise OperationError(f"{what}: {error}") from error
        # The largest value asked for so far: the next signal has to exceed it.
        self._last = 0
        # Makes the check and the queueing one step.
        self._lock = threading.Lock()

    def export_fd(self) -> int:
        """A new opaque file descriptor of the semaphore. The caller owns it: an import takes it
        over, otherwise ``os.close`` it. CUDA imports it as a timeline semaphore. Returns at once.
        Raises InvalidStateError when the context and the device are gone, OperationError when the
        driver fails."""
        return background.run_on_worker(self._export)

    def _export(self) -> int:
        device: Any = self._stream.device
        with self._stream.timeline.building():
            try:
                return sharing_of(device.driver).export_semaphore(self._native)
            except DriverError as error:
                raise OperationError(f"export_fd: {error}") from error

    def enqueue_signal(self, value: int) -> None:
        """Set the semaphore to ``value`` once all work queued so far has ended, successfully or
        not. Returns at once. Raises TypeError unless ``value`` is an integer, ValueError unless it
        exceeds every value signalled or waited for here before, InvalidStateError when the context
        and the device are gone."""
        background.run_on_worker(self._signal, _value(value, "enqueue_signal"))

    def _signal(self, value: int) -> None:
        with self._lock, self._stream.timeline.building():
            if value <= self._last:
                raise ValueError(f"enqueue_signal: {value} does not exceed {self._last}")
            self._last = value
            # If the work is never run, the other side must not wait forever.
            self._stream.enqueue(
                Submit(
                    [],
                    keep=self,
                    signal=[(self._native, value)],
                    failed=lambda _: stop_waits(self._native, value),
                )
            )

    def enqueue_wait(self, value: int) -> None:
        """Have work queued from now on start when ``value`` is reached; returns at once. TypeError
        unless it is an integer, InvalidStateError when the context and the device are gone."""
        background.run_on_worker(self._wait, _value(value, "enqueue_wait"))

    def _wait(self, value: int) -> None:
        with self._lock, self._stream.timeline.building():
            self._last = max(self._last, value)
            self._stream.enqueue(Submit([], keep=self, wait=[(self._native, value)]))

    def __repr__(self) -> str:
        return f"<GPUSemaphore of {self._stream.device.name}, last value {self._last}>"


def _value(value: Any, what: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what}: an integer is expected, not {value!r}") from None
    if not 1 <= number < 2**63:
        raise ValueError(f"{what}: {number} is outside 1 … 2^63 - 1")
    return number

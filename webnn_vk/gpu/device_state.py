"""The state that a ``GPUDevice`` and all objects made by it share: the opened device, the order of
work on it, and its end."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from webnn_vk.driver import (
    DeviceLost,
    DriverClosed,
    DriverError,
    OutOfDeviceMemory,
    OutOfHostMemory,
)
from webnn_vk.runtime.driver_device import DriverDevice
from webnn_vk.runtime.storage import DeviceLostError
from webnn_vk.runtime.timeline import Timeline
from webnn_vk.support import background
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import InvalidStateError, OperationError
from webnn_vk.support.promise import MLPromise, kind_of
from webnn_vk.support.settings import Settings


@dataclass(frozen=True)
class GPUDeviceLostInfo:
    """Why a device was lost: ``reason`` is "destroyed" or "unknown"."""

    reason: str
    message: str


class DeviceState:
    """The state of one ``GPUDevice``. It lives as long as the GPUDevice or any object made by it;
    its end ends the GPUDevice's use of the device."""

    def __init__(self, device: DriverDevice, settings: Settings) -> None:
        self.device = device
        self.settings = settings
        self.timeline = Timeline(device)
        #: Resolves when the device is lost or destroyed.
        self.lost: MLPromise[GPUDeviceLostInfo] = MLPromise("a GPUDeviceLostInfo")
        #: Guards ``exported`` against the end. Never taken in the main thread, where a signal
        #: handler might want it too.
        self.lock = threading.RLock()
        #: Buffers with tensors' memory, which go back at the end.
        self.exported: set[weakref.ref[Any]] = set()
        #: The GPUDevice's strict order of work.
        self.stream = self.timeline.stream(self._lose)

    def check(self, what: str) -> None:
        """InvalidStateError when the device is lost, or this is a forked child. ``what`` names the
        call in messages."""
        self.timeline.check_fork()
        if self.lost.done():
            info = self.lost.result()
            raise InvalidStateError(f"{what}: the GPUDevice is lost ({info.message})")

    @contextmanager
    def translated(self, what: str) -> Iterator[None]:
        """Raise the driver's errors as errors of the API."""
        try:
            yield
        except (MemoryError, OutOfDeviceMemory, OutOfHostMemory) as error:
            raise OperationError(f"{what}: {error}") from error
        except (DeviceLost, DeviceLostError) as error:
            self.timeline.lose(str(error))  # the contexts on the device are told too
            raise InvalidStateError(f"{what}: the GPUDevice is lost ({error})") from error
        except DriverClosed as error:  # another thread destroyed the device meanwhile
            raise InvalidStateError(f"{what}: {error}") from error
        except DriverError as error:
            raise OperationError(f"{what}: {error}") from error

    def destroy(self) -> None:
        """End this use of the device. Calling it again does nothing."""
        self.timeline.check_fork()
        background.run_on_worker(self._destroy)

    def _destroy(self) -> None:
        self.end(GPUDeviceLostInfo("destroyed", "destroy() was called"))
        # The last user to leave waits for the device, which destroy() must not do.
        background.retry(self.stream.leave, "close")

    def _lose(self, message: str) -> None:
        self.end(GPUDeviceLostInfo("unknown", message))

    def end(self, info: GPUDeviceLostInfo) -> None:
        """Report once that the device is lost; tensors get their memory back."""
        with self.lock:
            if not self.lost.resolve(info):
                return
        for exported in self.exported.copy():
            if (buffer := exported()) is not None:
                buffer.destroy()

    def __repr__(self) -> str:
        return f"<GPUDevice {self.device.name}{' lost' if self.lost.done() else ''}>"


class GPUDeviceBase:
    """The base of ``GPUDevice`` that other folders check for."""

    _state: DeviceState


def device_state(device: Any, what: str, hint: str = "") -> DeviceState:
    """The state of a GPUDevice. TypeError for anything else, with ``hint`` at the end of the
    message; InvalidStateError when the device is lost. ``what`` names the call."""
    if not isinstance(device, GPUDeviceBase):
        raise TypeError(
            f"{what}: a GPUDevice (of webnn_vk.gpu or wgpu) is expected, not "
            f"{kind_of(device)}{hint}"
        )
    device._state.check(what)
    return device._state


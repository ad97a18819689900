"""One context of the stress test, with its objects and the GPUDevices that it shares with."""

from __future__ import annotations

import gc
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from tests.support.contexts import open_over, settled_bytes
from tests.support.faults import FaultyDriver
from tests.system.stress.model import Buffer, Failure, Gpu, Graph, Leak, Tensor
from webnn_vk import DOMException, InvalidStateError, NotSupportedError, Settings, ml
from webnn_vk.driver import DriverError, OutOfDeviceMemory
from webnn_vk.gpu import request_adapter
from webnn_vk.gpu.adapter import GPUDevice
from webnn_vk.runtime.device_selection import open_device as open_found
from webnn_vk.runtime.driver_device import DriverDevice

#: Seconds after which unfinished work counts as hanging, however busy the machine is.
PATIENCE = 200.0


class Faults(FaultyDriver):
    """Imported memory counts as an allocation too."""

    def import_memory(self, *arguments: Any, **options: Any) -> Any:
        self._check("allocation", _refused)
        return self.driver.sharing.import_memory(*arguments, **options)

    def import_host_memory(self, *arguments: Any, **options: Any) -> Any:
        self._check("allocation", _refused)
        return self.driver.sharing.import_host_memory(*arguments, **options)


def _refused() -> Exception:
    return OutOfDeviceMemory("injected: the memory is not imported", requested=1)


@dataclass(eq=False)
class World:
    """Calls that change the model hold ``lock`` during the change and the call: the order of calls
    is the model's order. Destruction and loss take no lock: they may happen at any moment."""

    context: Any
    #: The context's driver (None on the CPU), and all drivers including the GPUDevices'.
    driver: FaultyDriver | None = None
    drivers: list[FaultyDriver] = field(default_factory=list)
    #: The GPUDevices; the last one is in use.
    gpus: list[Gpu] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)
    tensors: list[Tensor] = field(default_factory=list)
    #: Constant tensors, whose values are a ramp.
    constants: list[Tensor] = field(default_factory=list)
    graphs: list[Graph] = field(default_factory=list)
    buffers: list[Buffer] = field(default_factory=list)
    #: Promises with the checks of their outcomes.
    pending: list[Callable[[], None]] = field(default_factory=list)
    #: Refused calls, by error.
    refused: Counter[str] = field(default_factory=Counter)
    #: The context was destroyed, or is about to be.
    ended: bool = False
    #: Threads with a running call on it.
    visitors: int = 0

    @property
    def dead(self) -> bool:
        """Whether calls on the context should fail with InvalidStateError."""
        return self.ended or self.context.lost.done() or self.lost

    @property
    def lost(self) -> bool:
        return self.driver is not None and self.driver.injected["lost"] > 0

    # -- errors --------------------------------------------------------------------------------
    def excuse(self, error: BaseException, *items: Any) -> None:
        """Returns if ``error`` has a planted cause, else raises Failure. ``items`` are the objects
        that were used: the world itself for calls on its context."""
        self.refused[type(error).__name__] += 1
        if isinstance(error, InvalidStateError) and any(item.dead for item in items):
            return
        # The message distinguishes our planted faults from any other.
        if isinstance(error, DOMException) and self.drivers and "injected" in str(error):
            return
        raise Failure(f"{self.context!r}: {type(error).__name__}: {error}") from error

    @contextmanager
    def trying(self, *items: Any) -> Iterator[None]:
        """Surrounds a call and the change of the model after it. An excused error skips the change.
        A TypeError is excused when a tensor among ``items`` may be lent."""
        held = any(isinstance(item, Tensor) and item.held for item in items)
        try:
            yield
        except (DOMException, TypeError) as error:
            if held and type(error) is TypeError and "GPUBuffer" in str(error):
                self.refused["TypeError"] += 1
            else:
                self.excuse(error, *items)

    @contextmanager
    def using(self, *items: Any) -> Iterator[None]:
        """``trying`` around a call of the context that a lent tensor refuses."""
        with self.trying(self, *items):
            yield
            for item in items:
                if isinstance(item, Tensor) and item.surely_held:
                    raise Failure(f"{item.tensor!r} was used though {item.lent.buffer!r} holds it")

    # -- the GPUDevice -------------------------------------------------------------------------
    @property
    def gpu(self) -> Gpu:
        return self.gpus[-1]

    def open_gpu(self) -> None:
        """Replaces a GPUDevice that has ended."""
        made = open_device()
        with self.lock:
            self.drivers.append(made.driver)
            if self.gpu.dead:
                self.gpus.append(made)
                self.buffers.clear()
                return
            self.gpus.insert(0, made)  # another thread was first
        made.destroy()

    # -- ends ----------------------------------------------------------------------------------
    def check_values(self) -> None:
        """Buffers keep their contents, whatever became of their context and tensors."""
        for used in self.buffers:
            with self.trying(used):
                found = used.gpu.device.queue.read_buffer(used.buffer).result(PATIENCE)
                if not (found.view("int32") == used.memory.value).all():
                    raise Failure(f"{used.buffer!r} of {self.context!r} holds {found[:32]}")

    def check_returned(self) -> None:
        """A lost device has given its tensors back."""
        end = time.monotonic() + PATIENCE
        for used in self.tensors:
            state = used.tensor._state
            while used.lent is not None and used.lent.gpu.dead and state.lease is not None:
                if time.monotonic() > end:
                    raise Failure(f"{used.tensor!r} is not given back")
                time.sleep(0.01)

    def check_memory(self) -> None:
        """With everything in it destroyed, no byte is left, though the objects still exist."""
        destroyed = [*self.buffers, *self.tensors, *self.graphs, *self.constants]
        for item in destroyed:
            item.destroy()
        for items in (self.buffers, self.tensors, self.graphs, self.constants):
            items.clear()
        end = time.monotonic() + PATIENCE
        # gc.collect() does nothing while another thread collects: one call may not suffice.
        while left := self._memory_left():
            if time.monotonic() > end:
                raise Leak(repr(self.context), left)
            time.sleep(0.1)

    def _memory_left(self) -> list[FaultyDriver]:
        left = []
        for gpu in [*self.gpus, self]:
            try:
                if gpu.driver is None or gpu.dead:
                    continue
                if gpu is self:
                    in_use = settled_bytes(self.context)
                else:
                    gpu.device._state.stream.fence().wait(PATIENCE)
                    gc.collect()
                    in_use = gpu.device._state.device.memory_in_use()
            except InvalidStateError as error:
                self.excuse(error, gpu)  # lost meanwhile
                continue
            if in_use:
                left.append(gpu.driver)
        return left

    def check_end(self, *, drop: bool) -> None:
        """After all promises are checked and all objects are gone: context and devices end,
        destroyed or only dropped, and nothing is left."""
        name = repr(self.context)
        states = [self.context._state, *[gpu.device._state for gpu in self.gpus]]
        timelines = {state.timeline for state in states}
        del states
        if drop:
            self.context = None
            self.gpus.clear()
        else:
            self._check_loss()
        end = time.monotonic() + PATIENCE
        for timeline in timelines:
            while not timeline._closed.wait(0.2):
                gc.collect()  # one call may not suffice, as above
                if time.monotonic() > end:
                    raise Failure(f"{name}: {timeline.device.name} not closed after {PATIENCE} s")
        for driver in self.drivers:
            if driver.driver.memory_in_use().reserved:
                raise Failure(f"{name}: {driver.driver.memory_in_use()} after its end")

    def _check_loss(self) -> None:
        for gpu in self.gpus:
            gpu.destroy()
            info = gpu.device.lost.result(PATIENCE)
            reasons = [("destroyed", "destroy() was called")] * gpu.ended
            if (info.reason, info.message) not in reasons and not (
                    gpu.lost and info.reason == "unknown" and "injected" in info.message):
                raise Failure(f"{gpu.device!r}: {info}")
        if not self.dead:
            self.ended = True
            self.context.destroy()
        message = self.context.lost.result(PATIENCE).message
        # Both may happen: the first one counts.
        known = ["destroy() was called"] * self.ended + ["injected"] * self.lost
        if not any(text in message for text in known):
            raise Failure(f"{self.context!r}: lost: {message}")
        self.context.destroy()


def open_world(*, vulkan: bool, same: bool, force_cpu: bool) -> World:
    """``same``: the context is created on the GPUDevice, and they share one timeline; otherwise the
    device is opened twice."""
    forced = ("neg",) if force_cpu else ()
    if not vulkan:
        settings = Settings(device="cpu", force_cpu=forced)
        return World(ml.create_context(settings=settings).result(PATIENCE))
    made = open_device()
    if same:
        settings = replace(Settings.from_environment(), force_cpu=forced)
        context = ml.create_context(made.device, settings=settings).result(PATIENCE)
        return World(context, made.driver, [made.driver], [made])
    context, driver = insistently(lambda: open_over(Faults, force_cpu=forced))
    return World(context, driver, [driver, made.driver], [made])


def insistently(opened: Callable[[], Any]) -> Any:
    """Opens a device although the driver fails now and then."""
    while True:
        try:
            return opened()
        except (DriverError, NotSupportedError) as error:
            if "injected" not in str(error):
                raise


def open_device() -> Gpu:
    """A GPUDevice on its own driver."""
    adapter, settings = request_adapter().result(PATIENCE), Settings.from_environment()
    found = insistently(lambda: open_found(adapter._physical, settings))
    driver = Faults(found.driver)
    return Gpu(GPUDevice(adapter, DriverDevice(driver, found.shaders), settings), driver)

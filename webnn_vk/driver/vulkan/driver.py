"""`VulkanDriver`: an opened Vulkan device behind `driver.interface.Driver`."""

from __future__ import annotations

import atexit
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, TypeVar
from weakref import KeyedRef

from webnn_vk.driver import loading
from webnn_vk.driver.checks import check_submitted
from webnn_vk.driver.commands import Command
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.direct import Turns
from webnn_vk.driver.errors import (
    DeviceLost,
    DriverClosed,
    DriverError,
    ForkedProcess,
    OutOfDeviceMemory,
    OutOfHostMemory,
)
from webnn_vk.driver.resources import HostAccess, MemoryUse, PipelineRequest
from webnn_vk.driver.vulkan import binding as vk
from webnn_vk.driver.vulkan import instance as process
from webnn_vk.driver.vulkan.blocks import BufferBlocks
from webnn_vk.driver.vulkan.deferred import Handle, Native
from webnn_vk.driver.vulkan.direct import VulkanDirect
from webnn_vk.driver.vulkan.errors import VulkanUnavailable
from webnn_vk.driver.vulkan.facets import VulkanSharing, VulkanTimestamps
from webnn_vk.driver.vulkan.memory import Allocator, HeapUsage, VulkanAllocation
from webnn_vk.driver.vulkan.pipelines import PipelineStore, VulkanPipeline
from webnn_vk.driver.vulkan.precompilation import Precompilation
from webnn_vk.driver.vulkan.quirks import COMPILES_AT_FIRST_SUBMIT, SIGNAL_DEADLOCKS_WAIT, quirks_of
from webnn_vk.driver.vulkan.recording import NativeRecording, Recorder, VulkanRecording
from webnn_vk.driver.vulkan.semaphores import NativeTimeline, TimelineSemaphore
from webnn_vk.driver.vulkan.snapshot import (
    EXTENSIONS,
    FEATURES_10,
    FEATURES_11,
    FEATURES_12,
    FEATURES_13,
    PhysicalDevice,
)
from webnn_vk.driver.vulkan.submission import Submission
from webnn_vk.support import forks

# Seconds that `close` waits for work in flight before it abandons the device.
_CLOSE_TIMEOUT = 10.0
# Seconds between attempts of `close` to wait, if waiting fails.
_RETRIES = (0.001, 0.01, 0.1, 1.0)
_MANY_RETIRED = 16
# Before an allocation of at least this size, finished work is released.
_LARGE_BYTES = 1 << 20
# By device and heaps: a driver with simulated heaps has its own count.
_usages: dict[tuple[object, ...], HeapUsage] = {}
_usages_lock = threading.Lock()
_open: weakref.WeakSet[VulkanDriver] = weakref.WeakSet()
H = TypeVar("H", bound=Handle[Any])
forks.renew(globals(), _usages=dict, _usages_lock=threading.Lock, _open=weakref.WeakSet)


def open_driver(physical: PhysicalDevice, *, profile: DeviceProfile | None = None) -> VulkanDriver:
    """Opens a device. Only the features of `profile` are switched on (default: the device's own
    less those in ``WEBNN_VK_MASK``). Raises VulkanUnavailable for an unusable device."""
    return VulkanDriver(physical, profile or physical.profile.mask_from_environment())


class VulkanDriver:
    """See `driver.interface.Driver` for the methods."""

    def __init__(self, physical: PhysicalDevice, profile: DeviceProfile) -> None:
        process.check_fork()
        if physical.unusable:
            raise VulkanUnavailable(f"{physical.profile.name}: {physical.unusable}")
        physical = physical.current()
        self.profile = profile
        self.physical = physical
        self._quirks = quirks_of(profile, process.instance().layer_version)
        self._lost: str | None = None
        self._closed = False
        # Running calls on the device, which `close` waits for.
        self._calls = 0
        self._call_ended = threading.Condition(threading.Lock())
        # Objects that handles refer to, or submissions still use, with a reference to the handle.
        self._natives: dict[Native, KeyedRef[Native, Any] | None] = {}
        # Objects that no handle refers to any more: added under any lock, by one call into C,
        # which no signal handler can interrupt as it could a destructor.
        self._retired: deque[Native | KeyedRef[Native, Any]] = deque()
        with process.opening():
            self.handle = create_device(physical, profile)
            try:
                self._equip(physical, profile)
            except BaseException:
                # All or nothing: destroy the device and what was created on it.
                self._destroy_natives()
                _destroy_device(self.handle)
                raise
        _open.add(self)

    def _equip(self, physical: PhysicalDevice, profile: DeviceProfile) -> None:
        out = vk.new("VkQueue *")
        vk.lib.vkGetDeviceQueue(self.handle, physical.queue_family, 0, out)
        self._queue = out[0]
        self._blocks = blocks = BufferBlocks(self.handle, profile, self, physical.handle)
        with _usages_lock:
            usage = _usages.setdefault((physical.index, profile.memory_heaps),
                                       HeapUsage(len(profile.memory_heaps)))
        self._memory = Allocator(profile, blocks, blocks.memory_type_bits, usage)
        self._pipelines = PipelineStore(self.handle, profile)
        self._recorder = Recorder(self.handle, profile, physical.queue_family)
        self._timeline = self._new_timeline()
        self._natives[self._timeline] = None
        # Guards the queue, the counter, and `last_value` of whatever is submitted.
        self._lock = threading.Lock()
        self._submitted = 0
        self.sharing = VulkanSharing(self)
        self.timestamps = VulkanTimestamps(self) if "timestamps" in profile.features else None
        self.absent = {} if self.timestamps else {"timestamps": "it has no timestamps"}
        self._submission = Submission(self.handle, physical.queue_family, self._timeline)
        self._turns = Turns()
        self.direct = VulkanDirect(self)
        # None under the validation layer: its table of devices, which all calls read, has no lock.
        another = None if process.instance().validating else lambda: open_driver(
            physical, profile=profile)
        self._precompilation = Precompilation(another)

    # -- memory -------------------------------------------------------------------------------
    def allocate(self, size: int, *, host: bool = False, exportable: bool = False,
                 host_access: HostAccess = "", label: str = "") -> VulkanAllocation:
        self._ready()
        if size >= _LARGE_BYTES and self._retired:
            self._reap()  # it may reuse memory that a recording still had
        for last in (False, True):
            try:
                return self._guarded(lambda: self._memory.allocate(
                    size, host=host, exportable=exportable, host_access=host_access, label=label))
            except (OutOfDeviceMemory, OutOfHostMemory):
                # Finished work may hold enough memory.
                if last or not self._reap():
                    raise
        raise AssertionError("unreachable")

    def memory_in_use(self) -> MemoryUse:
        process.check_fork()
        self._reap()
        return self._memory.use()

    def reclaim(self, *, pipelines: bool = True) -> None:
        self._reap()
        try:
            self._guarded(lambda: self._give_back(pipelines))
        except (DriverClosed, ForkedProcess):
            pass

    def _give_back(self, pipelines: bool) -> None:
        if pipelines:
            self._pipelines.trim(0)
        self._memory.trim()

    # -- pipelines ----------------------------------------------------------------------------
    def pipelines(self, requests: Sequence[PipelineRequest]) -> list[VulkanPipeline]:
        self._ready()
        return self._guarded(lambda: self._pipelines.get(requests))

    def precompile(self, pipelines: Sequence[VulkanPipeline]) -> int:
        if not pipelines or COMPILES_AT_FIRST_SUBMIT not in self._quirks:
            return self.submitted()
        return self._precompilation.run(self, pipelines)

    # -- work ---------------------------------------------------------------------------------
    def record(self, commands: Sequence[Command]) -> VulkanRecording:
        self._ready()
        return self._record(lambda: self._recorder.record(commands))

    def _record(self, record: Callable[[], NativeRecording]) -> VulkanRecording:
        # Tracked before `close` goes on, which otherwise would not know it.
        recording = self._guarded(lambda: self._track(VulkanRecording, record()))
        if len(self._retired) > _MANY_RETIRED:
            self._reap()  # even if nothing is ever submitted
        return recording

    def _track(self, kind: Callable[..., H], native: Native, *more: Any) -> H:
        """The handle of a Vulkan object, which is destroyed when the handle is gone and no
        submission uses it."""
        self._natives[native] = None  # for `close`, if the next call fails
        handle = kind(native, self._retired.append, *more)
        self._natives[native] = KeyedRef(handle, self._retired.append, native)
        return handle

    def submit(self, recordings: Sequence[VulkanRecording], *,
               wait: Sequence[tuple[TimelineSemaphore, int]] = (),
               signal: Sequence[tuple[TimelineSemaphore, int]] = ()) -> int:
        self._ready()
        with self._lock:
            if self._closed:
                raise self._failed(0, "vkQueueSubmit")
            natives = [recording._native for recording in recordings]
            if None in natives:
                raise ValueError("a recording to submit was freed")
            waits = [(semaphore.native, awaited) for semaphore, awaited in wait]
            signals = [(semaphore.native, reached) for semaphore, reached in signal]
            direct = self._close_turns()
            try:
                value = self._submitted + 1
                result = self._submission.submit(self._queue, natives, waits, signals, value)
                if result < 0:
                    raise self._failed(result, "vkQueueSubmit")
                self._submitted = value
            finally:
                if direct:
                    self._turns.open(self._submitted)
            for native in natives:
                native.last_value = value
            for semaphore, reached in signals:
                semaphore.last_value = value
                semaphore.promised = max(semaphore.promised, reached)
            for semaphore, awaited in waits:
                semaphore.last_value = value
                semaphore.awaited = max(semaphore.awaited, awaited)
        if len(self._retired) > _MANY_RETIRED:
            self._reap()
        return value

    def _close_turns(self) -> bool:
        """No more direct submits, with the lock held; whether they were allowed."""
        last = self._turns.close()
        if last is not None:
            self._submitted = last
        return last is not None

    def wait(self, value: int, timeout: float | None = None) -> bool:
        check_submitted(value, self._submitted)
        self._ready()
        done = self._timeline.wait(value, timeout)
        self._reap()
        process.check_validation()
        return done

    def completed(self) -> int:
        self._ready()
        self._reap()
        # A lost device may report any value.
        return min(self._timeline.value(), self._submitted)

    def submitted(self) -> int:
        return self._submitted

    def _new_timeline(self, exportable: bool = False) -> NativeTimeline:
        return NativeTimeline(self.handle, self._failed, exportable=exportable,
                              in_turns=SIGNAL_DEADLOCKS_WAIT in self._quirks)

    # -- state --------------------------------------------------------------------------------
    def lost(self) -> str | None:
        return self._lost

    def close(self) -> None:
        """Waits for the work in flight, at most 10 s, and releases everything. When the device
        does not come to rest it is left alone, since destroying it could crash."""
        if process.is_forked():
            return  # the parent's: even the locks may be held by threads that the child lacks
        with self._lock:
            if self._closed:
                return
            self._closed = True
            self._close_turns()
        _open.discard(self)
        with self._call_ended:
            if not self._call_ended.wait_for(lambda: not self._calls, _CLOSE_TIMEOUT):
                return
        if not self._wait_idle():
            return
        self._destroy_natives()
        self._retired.clear()
        self._recorder.close()
        self._submission.close()
        self._pipelines.close()
        self._memory.close()
        _destroy_device(self.handle)

    def _destroy_natives(self) -> None:
        for native in [*self._natives]:
            native.destroy()
        self._natives.clear()

    def __del__(self) -> None:
        if hasattr(self, "_submission"):
            loading.from_destructor(self.close)

    def _wait_idle(self) -> bool:
        if self._lost:
            vk.lib.vkDeviceWaitIdle(self.handle)
            return True
        for pause in _RETRIES:
            try:
                return self._wait_for_all()
            except DeviceLost:
                return True
            except DriverError:
                time.sleep(pause)  # waiting failed for lack of memory; the work goes on
        return False

    def _wait_for_all(self) -> bool:
        semaphores = [native for native in [*self._natives]
                      if isinstance(native, NativeTimeline) and native is not self._timeline]
        for semaphore in semaphores:
            # Work may wait for a signal of this process that will never come; don't hang.
            if semaphore.value() < semaphore.awaited:
                semaphore.signal(semaphore.awaited)
        return (self._timeline.wait(self._submitted, _CLOSE_TIMEOUT)
                and all(semaphore.wait(semaphore.promised, _CLOSE_TIMEOUT)
                        for semaphore in semaphores))

    def _ready(self) -> None:
        process.check_fork()
        if self._closed:
            raise DriverClosed(f"the driver of {self.profile.name} was closed")
        if self._lost:
            raise DeviceLost(self._lost, "VK_ERROR_DEVICE_LOST")
        process.check_validation()

    def _failed(self, result: int, what: str) -> Exception:
        if result == 0:
            return DriverClosed(f"{what}: the driver of {self.profile.name} was closed")
        error = vk.error_of(result, f"{self.profile.name}: {what}")
        if isinstance(error, DeviceLost) and not self._lost:
            self._lost = str(error)
        return error

    def _guarded(self, call: Callable[[], Any]) -> Any:
        """Makes a call on the device, which stays open meanwhile."""
        with self._call_ended:
            if self._closed:
                raise self._failed(0, "a call")
            self._calls += 1
        try:
            return call()
        except DeviceLost as error:
            self._lost = self._lost or str(error)
            raise
        finally:
            with self._call_ended:
                self._calls -= 1
                self._call_ended.notify_all()

    # -- release of what is no longer in flight -------------------------------------------------
    def _reap(self) -> int:
        """Destroys what was released and is no longer in flight; returns how many objects."""
        if process.is_forked():
            return 0
        reaped = self._reap_retired()
        self._memory.collect()
        self._pipelines.trim()
        return reaped

    def _reap_retired(self) -> int:
        if not self._retired or not self._lock.acquire(blocking=False):
            return 0
        reaped = 0
        try:
            if self._closed:
                return 0
            done = self._submitted if self._lost else self._timeline.value()
            for _ in range(len(self._retired)):
                item = self._retired[0]
                native = item.key if isinstance(item, KeyedRef) else item
                known = native in self._natives  # else it was released by `free` before
                used = known and (native.last_value > done or not (self._lost or native.idle()))
                self._retired.popleft()
                if used:
                    self._retired.append(native)
                elif known:
                    del self._natives[native]
                    native.destroy()
                    reaped += 1
            return reaped
        except DriverError:
            return reaped  # the next call tries again; a loss is noted by _failed
        finally:
            self._lock.release()


def create_device(
    physical: PhysicalDevice, profile: DeviceProfile, more_features: Sequence[Any] = (),
    extensions: Sequence[str] = (),
) -> Any:
    """A VkDevice with the features of the profile that kernels may use, and with further structures
    of features and their extensions."""
    wanted = profile.features & physical.profile.features
    api = min(profile.api_version, physical.profile.api_version)[:2]
    is_13 = api >= (1, 3) and process.instance().api_version >= (1, 3)
    features = vk.struct("VkPhysicalDeviceFeatures2", "PHYSICAL_DEVICE_FEATURES_2")
    tables = [("11", FEATURES_11), ("12", FEATURES_12), *[("13", FEATURES_13)] * is_13]
    structs = [vk.struct(f"VkPhysicalDeviceVulkan{kind}Features",
                         f"PHYSICAL_DEVICE_VULKAN_1_{kind[1]}_FEATURES") for kind, _ in tables]
    targets = [(features.features, FEATURES_10),
               *[(target, table) for target, (_, table) in zip(structs, tables, strict=True)]]
    for target, table in targets:
        for name in wanted & table.keys():
            setattr(target, table[name], 1)
            if name == "vulkan_memory_model":
                target.vulkanMemoryModelDeviceScope = 1
    matrix = vk.struct("VkPhysicalDeviceCooperativeMatrixFeaturesKHR",
                       "PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR", cooperativeMatrix=1)
    chained = vk.chain(
        features, *structs, *[matrix] * ("cooperative_matrix" in wanted), *more_features
    )
    names = [*(EXTENSIONS[name] for name in sorted(wanted & EXTENSIONS.keys())), *extensions]
    if "VK_KHR_portability_subset" in physical.extensions:
        names.append("VK_KHR_portability_subset")  # must be enabled where it exists
    name_chars = [vk.new("char[]", name.encode()) for name in names]
    name_array = vk.new("char *[]", name_chars)
    priority = vk.new("float *", 1.0)
    queue = vk.struct("VkDeviceQueueCreateInfo", "DEVICE_QUEUE_CREATE_INFO",
                      queueFamilyIndex=physical.queue_family, queueCount=1,
                      pQueuePriorities=priority)
    info = vk.struct("VkDeviceCreateInfo", "DEVICE_CREATE_INFO", pNext=chained,
                     queueCreateInfoCount=1, pQueueCreateInfos=queue,
                     enabledExtensionCount=len(names), ppEnabledExtensionNames=name_array)
    with loading.alone:
        return vk.create(vk.lib.vkCreateDevice, physical.handle, info, "VkDevice")


def _destroy_device(handle: Any) -> None:
    with loading.alone:
        vk.lib.vkDestroyDevice(handle, vk.NULL)


@atexit.register
def _close_all() -> None:
    # Drivers' threads may call into the interpreter, so they must end before it.
    for driver in list(_open):
        driver.close()

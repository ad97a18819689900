"""``GPUQuerySet``: times that compute passes write."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Required, TypedDict

from webnn_vk.driver import (
    Command,
    DispatchCommand,
    Queries,
    ResolveCommand,
    TimestampCommand,
    timestamps_of,
)
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.runtime.storage import Storage
from webnn_vk.support.errors import NotSupportedError

from . import nanoseconds
from .device_state import DeviceState
from .objects import Destroyable, alive, clear, integer, named, own, shown
from .shader import GPUComputePipeline, GPUShaderModule

#: WebGPU's name of the feature.
TIMESTAMP_QUERY = "timestamp-query"
MAX_QUERIES = 4096
#: An offset in a destination must be a multiple of this, in bytes.
RESOLVE_ALIGNMENT = 256
_WRITES = ("beginning_of_pass_write_index", "end_of_pass_write_index")


class GPUQuerySet(Destroyable):
    """Slots for times; made by ``device.create_query_set``. Passes write them (``timestamp_writes``
    of ``begin_compute_pass``), ``encoder.resolve_query_set`` copies them into a buffer."""

    def __init__(self, device: DeviceState, type: str, count: int, label: str) -> None:
        what = named("create_query_set", label)
        if type != "timestamp":
            raise ValueError(f'{what}: type {type!r}; "timestamp" is the one that is supported')
        count = integer(count, f"{what}: count")
        if not 1 <= count <= MAX_QUERIES:
            raise ValueError(f"{what}: count {count}; 1 to {MAX_QUERIES} are possible")
        device.check(what)
        if (reason := missing(device)) is not None:
            raise NotSupportedError(f"{what}: {reason}")
        self._count = count
        profile = device.device.profile
        #: Made here, so that a device without this kernel fails now and not during recording.
        self._converter: GPUComputePipeline | None = None
        if nanoseconds.needed(profile):
            module = GPUShaderModule(device, nanoseconds.spec(), "nanoseconds")
            constants = {"LX": nanoseconds.GROUP}
            self._converter = GPUComputePipeline(device, module, "main", constants, "nanoseconds")
        with device.translated(what):
            queries = timestamps_of(device.device.driver).queries(count)
        super().__init__(device, label, queries)

    @property
    def type(self) -> str:
        """The kind of query: "timestamp"."""
        return "timestamp"

    @property
    def count(self) -> int:
        """The number of slots."""
        return self._count

    def destroy(self) -> None:
        """Release the set, at once. Submitted work completes; later work with the set raises
        InvalidStateError. A second call does nothing."""
        self._device.timeline.check_fork()
        clear(self)

    def __repr__(self) -> str:
        state = "" if self._contents else " destroyed"
        return f"<GPUQuerySet{shown(self._label)} of {self._count} timestamps{state}>"


def webgpu_features(profile: DeviceProfile) -> frozenset[str]:
    """A profile's features, with WebGPU's "timestamp-query" added where it applies."""
    return profile.features | ({TIMESTAMP_QUERY} if "timestamps" in profile.features else set())


def missing(device: DeviceState) -> str | None:
    """Why a device has no timestamps; None where it has them."""
    profile = device.device.profile
    if "timestamps" not in profile.features:
        return f"{profile.name} has no feature {TIMESTAMP_QUERY}: no timestamps on its queue"
    if device.device.driver.timestamps is None:
        return f"{profile.name} has no feature {TIMESTAMP_QUERY}: its driver writes no timestamps"
    return None


class GPUComputePassTimestampWrites(TypedDict, total=False):
    """``timestamp_writes`` of ``begin_compute_pass``: a set and one or both slot numbers."""

    query_set: Required[GPUQuerySet]
    beginning_of_pass_write_index: int
    end_of_pass_write_index: int


class PassWrites:
    """The slots of a set that a pass writes at its beginning and at its end."""

    def __init__(self, device: DeviceState, given: Any, what: str) -> None:
        what = f"{what}: timestamp_writes"
        if not isinstance(given, Mapping) or "query_set" not in given:
            raise TypeError(
                f"{what}: a mapping with query_set, {' and '.join(_WRITES)} is expected, not "
                f"{given!r}"
            )
        if unknown := sorted(map(str, set(given) - {"query_set", *_WRITES})):
            raise TypeError(f"{what}: unknown members {', '.join(unknown)}; they are query_set, "
                            f"{', '.join(_WRITES)}")
        self.set = own(given["query_set"], GPUQuerySet, device, what)
        self._queries: Queries = alive(self.set, what)
        indices = [given.get(name) for name in _WRITES]
        for name, index in zip(_WRITES, indices, strict=True):
            if index is not None and not 0 <= integer(index, f"{what}: {name}") < self.set.count:
                raise ValueError(f"{what}: {name} {index}; {self.set!r}")
        if indices == [None, None]:
            raise ValueError(f"{what}: one of {' and '.join(_WRITES)} is needed")
        if indices[0] == indices[1]:
            raise ValueError(f"{what}: both indices are {indices[0]}")
        self._indices = indices

    def command(self, end: bool) -> TimestampCommand | None:
        """The command to record at the pass's beginning or its end."""
        index = self._indices[end]
        if index is None:
            return None
        return TimestampCommand(int(index), self._queries)


def check_slots(queries: GPUQuerySet, first: Any, count: Any, what: str) -> tuple[int, int]:
    """``first`` and ``count`` as integers. Raises ValueError for slots outside of the set."""
    first, count = integer(first, f"{what}: first_query"), integer(count, f"{what}: query_count")
    if first < 0 or count < 0 or first + count > queries.count:
        raise ValueError(f"{what}: {count} queries from {first} on; {queries!r}")
    return first, count


def resolution(
    queries: GPUQuerySet, first: int, count: int, storage: Storage, offset: int
) -> list[Command]:
    """The commands that write times in nanoseconds to a memory. Each must see the results of the
    one before it."""
    what = "resolve_query_set"
    backing = storage.backing
    commands: list[Command] = [
        ResolveCommand(alive(queries, what), first, count, backing, offset)
    ]
    if (converter := queries._converter) is not None:
        params = nanoseconds.params(count, queries._device.device.profile)
        groups = -(-count // nanoseconds.GROUP)
        commands.append(DispatchCommand(
            converter._native, ((backing, offset, 8 * count),),
            nanoseconds.spec().pack_params(params), (groups, 1, 1),
        ))
    return commands

"""Pipelines through Kompute: checked requests. Kompute's "algorithm" is a pipeline with its
bindings, push constants and workgroups, and each compiles its shader again. So recordings share
equal algorithms.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict, deque
from typing import Any

import numpy as np

from webnn_vk.driver.checks import check_pipeline
from webnn_vk.driver.commands import DispatchCommand
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.driver.kompute.binding import KomputeError
from webnn_vk.driver.kompute.memory import Buffer, Hold
from webnn_vk.driver.resources import PipelineRequest
from webnn_vk.support.dataclass import dataclass

# SPIR-V: words of the header, OpCapability, and the capabilities that need no device feature.
_HEADER, _OP_CAPABILITY = 5, 17
_FREE_CAPABILITIES = {
    0: "Matrix", 1: "Shader", 50: "ImageQuery", 61: "GroupNonUniform", 62: "GroupNonUniformVote",
    63: "GroupNonUniformArithmetic", 64: "GroupNonUniformBallot", 65: "GroupNonUniformShuffle",
    66: "GroupNonUniformShuffleRelative",
}
# Float controls are properties in Vulkan 1.2.
_FLOAT_CONTROLS = {
    4464: "denorm_preserve_f32", 4465: "denorm_flush_f32", 4466: "nan_preserve_f32",
    4467: "rounding_rte_f32",
}


@dataclass(frozen=True, eq=False)
class KomputePipeline:
    """See `driver.resources.Pipeline`."""

    request: PipelineRequest


#: Unused algorithms that are kept while their memory lives: the same graph with other tensors
#: reuses those that bind none of its tensors. On lavapipe 1 to 3 MB each.
MAX_KEPT = 512


class Bound:
    """An algorithm of Kompute's, with what it uses."""

    __slots__ = ("__weakref__", "algorithm", "buffers", "pipeline")

    def __init__(self, algorithm: Any, pipeline: KomputePipeline,
                 buffers: tuple[Buffer, ...]) -> None:
        self.algorithm, self.pipeline, self.buffers = algorithm, pipeline, buffers


class Pipelines:
    """The pipelines and algorithms of one manager. Thread-safe."""

    def __init__(self, manager: Any, profile: DeviceProfile) -> None:
        self._manager, self._profile = manager, profile
        self._lock = threading.Lock()
        self._pipelines: weakref.WeakValueDictionary[PipelineRequest, KomputePipeline] = (
            weakref.WeakValueDictionary())
        # An algorithm keeps its resources alive, so their ids identify it.
        self._bound: weakref.WeakValueDictionary[tuple[Any, ...], Bound] = (
            weakref.WeakValueDictionary())
        # Kept algorithms in order of use, with the allocations' holds on the memory; and the holds
        # that ended since the last sweep, added on any thread, under any lock.
        self._kept: OrderedDict[tuple[Any, ...], tuple[Bound, list[weakref.ref[Hold]]]] = (
            OrderedDict())
        self._ended: deque[weakref.ref[Hold]] = deque()

    def get(self, request: PipelineRequest) -> KomputePipeline:
        """The pipeline of a request; ValueError for one that Kompute can't serve."""
        self._check(request)
        with self._lock:
            pipeline = self._pipelines.get(request)
            if pipeline is None:
                pipeline = self._pipelines[request] = KomputePipeline(request)
            return pipeline

    def bind(self, command: DispatchCommand) -> Bound:
        """The algorithm of a checked dispatch, whose workgroups are all above 0."""
        pipeline: Any = command.pipeline
        self.sweep()
        bindings: list[Any] = [allocation for allocation, _, _ in command.bindings]
        holds: list[Hold] = [allocation.held for allocation in bindings]
        buffers = tuple(hold.buffer for hold in holds)
        key = (id(pipeline), *map(id, buffers), command.push, command.groups)
        with self._lock:
            bound = self._bound.get(key)
            if bound is None:
                bound = self._bound[key] = Bound(
                    self._algorithm(pipeline.request, buffers, command), pipeline, buffers)
            if key not in self._kept:
                watched = [weakref.ref(hold, self._ended.append) for hold in holds]
                self._kept[key] = bound, watched
            self._kept.move_to_end(key)
            while len(self._kept) > MAX_KEPT:
                self._kept.popitem(last=False)
            return bound

    def sweep(self, *, everything: bool = False) -> None:
        """Releases kept algorithms whose memory was freed, or `everything`."""
        if not (self._ended or everything):
            return
        with self._lock:
            self._ended.clear()
            for key, (_, watched) in list(self._kept.items()):
                if everything or any(watch() is None for watch in watched):
                    del self._kept[key]

    def held(self) -> list[Bound]:
        """The living algorithms."""
        return list(self._bound.values())

    def _algorithm(self, request: PipelineRequest, buffers: tuple[Buffer, ...],
                   command: DispatchCommand) -> Any:
        constants = np.frombuffer(b"".join(data for _, data in request.constants), np.uint32)
        push = np.frombuffer(command.push, np.uint32)
        try:
            algorithm = self._manager.algorithm([buffer.tensor for buffer in buffers],
                                                request.spirv, command.groups, constants, push)
        except RuntimeError as error:
            raise KomputeError(f"Kompute makes no algorithm of {request.name!r}: {error}"
                               ) from error
        if not algorithm.is_init():
            raise KomputeError(f"Kompute made an algorithm of {request.name!r} without a pipeline")
        return algorithm

    def _check(self, request: PipelineRequest) -> None:
        check_pipeline(request, self._profile)
        what = f"pipeline {request.name!r}"
        if request.binding_count < 1:
            raise ValueError(f"{what}: Kompute runs nothing without a storage buffer")
        if request.entry_point != "main":
            raise ValueError(f"{what}: Kompute runs the entry point main, not "
                             f"{request.entry_point!r}")
        ids = [identifier for identifier, _ in request.constants]
        if ids != list(range(len(ids))):
            raise ValueError(f"{what}: Kompute numbers specialisation constants from 0 on, without "
                             f"gaps; these are {ids}")
        for capability in capabilities(request.spirv):
            needed = _FLOAT_CONTROLS.get(capability)
            if capability not in _FREE_CAPABILITIES and needed not in self._profile.features:
                raise ValueError(f"{what}: its SPIR-V declares capability {capability}, a device "
                                 "feature that Kompute does not enable")


def capabilities(spirv: bytes) -> list[int]:
    """The capabilities that a module declares."""
    words = np.frombuffer(spirv, np.uint32)
    found = []
    at = _HEADER
    while at + 1 < len(words) and int(words[at]) & 0xFFFF == _OP_CAPABILITY:
        found.append(int(words[at + 1]))
        at += 2
    return found

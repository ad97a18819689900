"""Questions to a context from importers, generation and the tools, beside its public methods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webnn_vk.runtime.cpu import CpuDevice
from webnn_vk.runtime.driver_device import DriverDevice

from .context import MLContext

if TYPE_CHECKING:
    from webnn_vk.profiler.pictures import PassPictures
    from webnn_vk.runtime.engine import HostEngine
    from webnn_vk.runtime.tuning.tuner import Tuner


def implements(context: MLContext, draft: str) -> bool:
    """Whether the context has this draft of the Working Group (experimental)."""
    return draft in context._state.experimental


def cpu_engine(context: MLContext) -> HostEngine | None:
    """What computes on the CPU device; None for a context on another device."""
    device = context._state.device
    return device.engine if isinstance(device, CpuDevice) else None


def is_observed(context: MLContext) -> bool:
    """Whether a profile observes the context's work. InvalidStateError if the context is lost."""
    context._state.check()
    return context._state.timeline.observer is not None


def memory_in_use(context: MLContext) -> int:
    """Bytes of tensors, weights and intermediates on the device."""
    return context._state.device.memory_in_use()


def self_test_seconds(context: MLContext) -> float:
    """The time that self-tests of kernels took on the context's device so far; 0 on the CPU."""
    device = context._state.device
    return device.trials.seconds if isinstance(device, DriverDevice) else 0.0


def tuner_of(context: MLContext) -> Tuner | None:
    """What measures kernels while graphs are built; None if the context doesn't tune."""
    return context._state.tuner


def pass_pictures(context: MLContext) -> PassPictures:
    """Pictures of the passes over the graphs that are built in its ``with`` statement."""
    from webnn_vk.profiler.pictures import PassPictures

    return PassPictures(context._state)

"""The memory of tensors and buffers, as held by queued work."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from webnn_vk.compiler.kernels import Refused

_serials = itertools.count(1)


class DeviceLostError(Exception):
    """The device and everything on it are lost; the message says why."""


class ShadersMissing(Exception):
    """A program's shaders are unavailable because the GLSL compiler failed; the message says how.
    ``for_good``: it is not tried again."""

    def __init__(self, message: str, for_good: bool) -> None:
        self.for_good = for_good
        super().__init__(message)


class KernelsRefused(Exception):
    """The GLSL compiler refuses modules of a program, or the driver pipelines; the message says how
    the first was refused. ``refused``: all of them, with reasons. ``defect``: it is not the
    driver's fault."""

    def __init__(self, refused: Refused, *, defect: bool = False) -> None:
        self.refused, self.defect = refused, defect
        super().__init__(next(iter(refused.values())))


class Miscompiles(Exception):
    """The device computes wrongly by kernels of a program; the message says how this was found.
    ``feature``: the feature to avoid on that device."""

    def __init__(self, message: str, feature: str) -> None:
        self.feature = feature
        super().__init__(message)


class Storage:
    """A tensor's memory. Python's references are its lifetime: tensors, queued work, work in flight
    and graphs that use it hold it, and the memory is freed after the last of them.

    ``error`` is the error of the last work on it; reading it raises that. ``twin`` is memory for
    transfers, if the host accesses the bytes there: each run of a graph copies its inputs from
    their twins, and its outputs to theirs.
    """

    __slots__ = ("__weakref__", "backing", "error", "serial", "size", "twin")

    # ``backing`` is None until an ``Allocate`` of the timeline has allocated the memory.
    def __init__(self, size: int, backing: Any) -> None:
        self.size = size
        self.backing = backing
        self.serial = next(_serials)
        self.error: Exception | None = None
        self.twin: Any = None

    def release(self) -> None:
        """Free the memory before the last reference is dropped. No later work may use it."""
        self.backing = None


def poisoned(inputs: Iterable[Storage]) -> Exception | None:
    """The error of the first input whose contents are the result of failed work."""
    return next((again(s.error) for s in inputs if s.error is not None), None)


def unfound(outputs: Iterable[Storage]) -> Exception | None:
    """The error of the first output for which no memory could be allocated."""
    return next((again(s.error) for s in outputs if s.backing is None and s.error), None)


def again(error: Exception) -> Exception:
    """A copy of the error for another raise: raising one object in many places would tie them
    together through its traceback."""
    fresh = type(error)(*error.args)
    fresh.__cause__ = error.__cause__
    return fresh

"""Engines for CPU steps: NumPy's references, or an engine for as many of them as it supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Protocol

import numpy as np

from webnn_vk.compiler.program import Constants, HostSegment, Program
from webnn_vk.support.dataclass import dataclass

from .host import Arrays, Memory, run_host_segment

#: Runs the steps of one segment.
HostRun = Callable[[Arrays, Memory], None]
#: Runs a whole program: takes the inputs by name, aligned and contiguous, and returns the outputs
#: in new memory.
WholeRun = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


@dataclass(frozen=True)
class Prepared:
    """A program's CPU segments, ready to run, by their numbers among its segments. ``notes``: by
    origin, the kernel and variant that the report shows for a step. ``whole``: the same run as one
    call, if the engine takes the whole program at once."""

    runs: Mapping[int, HostRun] = field(default_factory=dict)
    notes: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    whole: WholeRun | None = None


class HostEngine(Protocol):
    """Makes CPU segments ready to run."""

    #: "numpy" or "onnxruntime".
    name: str
    #: Its name and version.
    description: str

    def prepare(self, program: Program, constants: Constants) -> Prepared:
        """The program's CPU segments. Constants in host memory are read in place."""


class NumPyEngine:
    """The operators' references, step by step."""

    name = "numpy"

    @property
    def description(self) -> str:
        return f"NumPy {np.__version__}"

    def prepare(self, program: Program, constants: Constants) -> Prepared:
        """See ``HostEngine``."""
        return Prepared({
            number: partial(run_host_segment, segment)
            for number, segment in enumerate(program.segments)
            if isinstance(segment, HostSegment)
        })


NUMPY = NumPyEngine()

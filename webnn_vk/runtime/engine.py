"""Engines for CPU steps: NumPy's references, or an engine for as many of them as it supports."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from functools import partial
from typing import Protocol

import numpy as np

from webnn_vk.compiler.program import (
    Constants,
    GraphReport,
    HostSegment,
    Program,
    with_kernels,
)
from webnn_vk.support.dataclass import dataclass

from .host import Arrays, Memory, run_host_segment

#: Runs the steps of one segment.
HostRun = Callable[[Arrays, Memory], None]
#: Runs a whole program: takes the inputs by name, aligned and contiguous, and returns the outputs
#: in new memory.
WholeRun = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]
#: Why steps that an engine refused in a run stay on NumPy, by their origins' numbers and operators.
#: The executables of one graph share it.
Refused = dict[tuple[int, tuple[str, ...]], str]


class RefusedRun(Exception):
    """The engine refused a step of a whole program, and will leave it to NumPy: the program is to
    be run by its segments."""


@dataclass(frozen=True)
class Prepared:
    """A program's CPU segments, ready to run, by their numbers among its segments. ``notes``: by
    origin, the kernel and variant that the report shows for a step; they change where the engine
    refuses a step in a run. ``whole``: the same run as one call, if the engine takes the whole
    program at once; it raises RefusedRun."""

    runs: Mapping[int, HostRun] = field(default_factory=dict)
    notes: Mapping[int, tuple[str, str]] = field(default_factory=dict)
    whole: WholeRun | None = None
    refused: Refused = field(default_factory=dict)

    def report(self, program: Program) -> GraphReport:
        """The program's report, with the kernels of its CPU steps."""
        origins, notes = program.origins, dict(self.notes)
        for (number, operators), why in self.refused.items():
            if number < len(origins) and origins[number].operators == operators:
                notes[number] = "numpy", why
        return with_kernels(program.report, program, notes)


class HostEngine(Protocol):
    """Makes CPU segments ready to run."""

    #: "numpy" or "onnxruntime".
    name: str
    #: Its name and version.
    description: str

    def prepare(self, program: Program, constants: Constants, refused: Refused) -> Prepared:
        """The program's CPU segments. Constants in host memory are read in place. ``refused``: the
        steps that runs of the graph's other executables refused; this one's are added."""


class NumPyEngine:
    """The operators' references, step by step."""

    name = "numpy"

    @property
    def description(self) -> str:
        return f"NumPy {np.__version__}"

    def prepare(self, program: Program, constants: Constants, refused: Refused) -> Prepared:
        """See ``HostEngine``."""
        return Prepared({
            number: partial(run_host_segment, segment)
            for number, segment in enumerate(program.segments)
            if isinstance(segment, HostSegment)
        })


NUMPY = NumPyEngine()

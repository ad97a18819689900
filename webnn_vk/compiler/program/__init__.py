"""The executable form of a graph: steps over numbered slots of memory, as plain data; its files and
saved graphs. Imports `kernels/` and the folders below it, and no runtime."""

from __future__ import annotations

from typing import TYPE_CHECKING

from webnn_vk.support.lazy_names import lazy_names

from .constants import Constants, TensorStorage
from .graph_report import GraphReport, ReportLine
from .program import (
    BarrierStep,
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DeviceStep,
    DispatchStep,
    HostSegment,
    Planned,
    Program,
    Range,
    RepeatStep,
    SetupPart,
    SpecConstants,
    executed,
)

if TYPE_CHECKING:
    from ..passes.pipeline import Target as Target
    from .compile import check_forced as check_forced
    from .compile import check_skip as check_skip
    from .compile import compile_program as compile_program
    from .compile import kernels_of as kernels_of
    from .make_report import with_kernels as with_kernels
    from .overwriting import copies_kept as copies_kept

# Loaded on first use: a context needs the plain data only; importing the compiler takes a while.
_MODULE_OF = {
    "Target": "compile",
    "check_forced": "compile",
    "check_skip": "compile",
    "compile_program": "compile",
    "copies_kept": "overwriting",
    "kernels_of": "compile",
    "with_kernels": "make_report",
}

__getattr__ = lazy_names(globals(), _MODULE_OF)

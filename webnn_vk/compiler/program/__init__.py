"""The executable form of a graph: steps over numbered slots of memory, as plain data; its files and
saved graphs. Imports `kernels/` and the folders below it, and no runtime."""

from ..passes.pipeline import Target
from .compile import check_forced, check_skip, compile_program, kernels_of
from .constants import Constants, TensorStorage
from .overwriting import copies_kept
from .program import (
    BarrierStep,
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DeviceStep,
    DispatchStep,
    HostSegment,
    Program,
    Range,
    RepeatStep,
    SetupPart,
)
from .report import GraphReport, ReportLine
from .reporting import with_kernels

__all__ = [
    "BarrierStep",
    "Constants",
    "CopyStep",
    "CpuStep",
    "CpuTensor",
    "DeviceSegment",
    "DeviceStep",
    "DispatchStep",
    "GraphReport",
    "HostSegment",
    "Program",
    "Range",
    "RepeatStep",
    "ReportLine",
    "SetupPart",
    "Target",
    "TensorStorage",
    "check_forced",
    "check_skip",
    "compile_program",
    "copies_kept",
    "kernels_of",
    "with_kernels",
]

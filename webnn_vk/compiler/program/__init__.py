"""The executable form of a graph: steps over numbered slots of memory, as plain data; its files and
saved graphs. Imports `kernels/` and the folders below it, and no runtime."""

from .compile import Target, check_forced, check_skip, compile_program, kernels_of
from .constants import Constants, FileRange, HostArray, TensorStorage
from .program import (
    BarrierStep,
    CopyStep,
    CpuStep,
    CpuTensor,
    DeviceSegment,
    DeviceStep,
    DispatchStep,
    HostSegment,
    Origin,
    Program,
    Range,
    SetupPart,
    Slot,
)
from .report import GraphReport, ReportLine, ReportStep
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
    "FileRange",
    "GraphReport",
    "HostArray",
    "HostSegment",
    "Origin",
    "Program",
    "Range",
    "ReportLine",
    "ReportStep",
    "SetupPart",
    "Slot",
    "Target",
    "TensorStorage",
    "check_forced",
    "check_skip",
    "compile_program",
    "kernels_of",
    "with_kernels",
]

"""The executable form of a graph: steps over memory locations, as plain data."""

from .compile import Target, check_skip, compile_program
from .program import (
    BarrierStep,
    CopyStep,
    DeviceSegment,
    DispatchStep,
    HostSegment,
    Location,
    Program,
)
from .report import GraphReport, ReportStep

__all__ = [
    "BarrierStep",
    "CopyStep",
    "DeviceSegment",
    "DispatchStep",
    "GraphReport",
    "HostSegment",
    "Location",
    "Program",
    "ReportStep",
    "Target",
    "check_skip",
    "compile_program",
]

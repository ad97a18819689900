"""The context timeline: ordered work on a device, and the memory it works on."""

from .cpu import CpuDevice
from .device import Device
from .driver_device import DriverDevice
from .storage import Storage
from .timeline import Fence, Lane, Timeline
from .work import (
    Allocate,
    Await,
    Executable,
    Lend,
    Read,
    Return,
    Run,
    RunGraph,
    SetUp,
    Submit,
    Write,
)

__all__ = [
    "Allocate",
    "Await",
    "CpuDevice",
    "Device",
    "RunGraph",
    "Executable",
    "Fence",
    "DriverDevice",
    "Lane",
    "Lend",
    "Read",
    "Return",
    "Run",
    "SetUp",
    "Storage",
    "Submit",
    "Timeline",
    "Write",
]

"""The context timeline: ordered work on a device, and the memory it works on."""

from .cpu import CpuDevice
from .device import Device, Executable, Storage
from .gpu import GpuDevice
from .timeline import Fence, Timeline
from .work import Allocate, Await, Dispatch, Read, Run, Submit, Write

__all__ = [
    "Allocate",
    "Await",
    "CpuDevice",
    "Device",
    "Dispatch",
    "Executable",
    "Fence",
    "GpuDevice",
    "Read",
    "Run",
    "Storage",
    "Submit",
    "Timeline",
    "Write",
]

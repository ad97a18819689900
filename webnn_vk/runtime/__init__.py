"""The context timeline: ordered work on a device, and the memory it works on."""

from .cpu import CpuDevice
from .device import Device, Executable, Storage
from .driver_device import DriverDevice
from .timeline import Fence, Timeline
from .work import Allocate, Await, Read, Run, RunGraph, SetUp, Submit, Write

__all__ = [
    "Allocate",
    "Await",
    "CpuDevice",
    "Device",
    "RunGraph",
    "Executable",
    "Fence",
    "DriverDevice",
    "Read",
    "Run",
    "SetUp",
    "Storage",
    "Submit",
    "Timeline",
    "Write",
]

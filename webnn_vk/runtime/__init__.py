"""The context timeline: ordered work on a device, and the memory it works on; CPU engines, tuning,
and the state of contexts and tensors. Imports `compiler/` and the folders below it."""

from .cpu import CpuDevice, CpuExecutable
from .device import Device
from .driver_device import DriverDevice
from .engine import HostEngine
from .engines import find_engine
from .observer import Observer
from .storage import Storage
from .stream import Fence, Stream
from .timeline import Timeline
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
    "CpuExecutable",
    "Device",
    "RunGraph",
    "Executable",
    "Fence",
    "HostEngine",
    "DriverDevice",
    "Stream",
    "Lend",
    "Observer",
    "Read",
    "Return",
    "Run",
    "SetUp",
    "Storage",
    "Submit",
    "Timeline",
    "Write",
    "find_engine",
]

"""The driver interface, descriptions of devices (`DeviceProfile`), and the drivers.

`interface.Driver` is an opened device: twelve methods. `commands` are what it records, as data;
`resources` what it makes; `errors` what it raises; `facets` what only some drivers can do.
`vulkan/`, `kompute/` and `null/` implement it, `webnn_vk.runtime.device_selection` opens them;
nothing else names an implementation. Imports only `support/`.
"""

from .commands import (
    BarrierCommand,
    Command,
    CopyCommand,
    DispatchCommand,
    FillCommand,
    OwnershipCommand,
    ResolveCommand,
    TimestampCommand,
)
from .errors import (
    DeviceLost,
    DriverClosed,
    DriverError,
    DriverUnavailable,
    FeatureMissing,
    ForkedProcess,
    OutOfDeviceMemory,
    OutOfHostMemory,
)
from .facets import Timestamps
from .interface import Driver, sharing_of, timestamps_of
from .resources import (
    Allocation,
    ExternalMemory,
    Pipeline,
    PipelineRequest,
    Queries,
    Recording,
)

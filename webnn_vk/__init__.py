"""The W3C Web Neural Network API on Vulkan compute.

Names are loaded on first use (PEP 562), so that `import webnn_vk.codegen` needs neither NumPy nor
a Vulkan driver.
"""

from __future__ import annotations

import os

from .support.lazy_names import lazy_names

__version__ = "0.1.0"

_MODULE_OF = {
    "ml": "api.navigator",
    "devices": "api.navigator",
    "ML": "api.navigator",
    "MLContext": "api.context",
    "MLTensor": "api.tensor",
    "MLGraphBuilder": "api.builder",
    "MLOperand": "api.builder",
    "MLGraph": "api.ml_graph",
    "MLSubgraph": "api.subgraph",
    "MLPromise": "support.promise",
    "MLOperandDescriptor": "compiler.types.data_types",
    "MLTensorDescriptor": "compiler.types.data_types",
    "MLDynamicDimension": "compiler.types.dimensions",
    "MLContextLostInfo": "runtime.context_state",
    "from_dlpack": "api.dlpack_import",
    "Settings": "support.settings",
    "DeviceInfo": "driver.device_info",
    "DOMException": "support.errors",
    "InvalidStateError": "support.errors",
    "NotSupportedError": "support.errors",
    "OperationError": "support.errors",
    "UnknownError": "support.errors",
    "SecurityError": "support.errors",
}

__all__ = [*_MODULE_OF, "__version__"]

if not os.path.isdir(os.path.join(__path__[0], "codegen")):
    from .support import source_tree

    source_tree.find_folders(__name__, __path__[0])


_PACKAGES = ("gpu", "onnx", "onnx_backend", "webnn_file")
__getattr__ = lazy_names(globals(), {**_MODULE_OF, **dict(zip(_PACKAGES, _PACKAGES, strict=True))})


def __dir__() -> list[str]:
    return sorted({*__all__, "gpu", *(name for name in globals() if name.startswith("__"))})

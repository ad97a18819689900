"""Which engine a setting means."""

from __future__ import annotations

from importlib.util import find_spec

from ..errors import NotSupportedError
from .engine import NUMPY, HostEngine
from .onnx_engine import OnnxEngine


def find_engine(choice: str = "auto") -> HostEngine:
    """The engine of a setting: "numpy", "onnxruntime", or "auto": ONNX Runtime where the extra
    ``cpu`` is installed. NotSupportedError where it was asked for and is not. Nothing is imported
    yet: that takes a third of a second."""
    missing = [name for name in ("onnx", "onnxruntime") if find_spec(name) is None]
    if choice == "numpy" or (choice == "auto" and missing):
        return NUMPY
    if missing:
        raise NotSupportedError(
            f"cpu_engine: onnxruntime needs the packages onnx and onnxruntime; "
            f"{' and '.join(missing)} can't be imported: pip install 'webnn_vk[cpu]'"
        )
    return OnnxEngine(required=choice == "onnxruntime")

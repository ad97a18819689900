"""Which engine a setting means."""

from __future__ import annotations

from webnn_vk.compiler.program import Constants, HostSegment, Program
from webnn_vk.support import forks, packages
from webnn_vk.support.errors import NotSupportedError

from .engine import NUMPY, HostEngine, Prepared


class OnnxEngine:
    """ONNX Runtime; see ``engine.HostEngine``. ``required``: not to be replaced by NumPy where it
    is broken. What makes its models is loaded for programs with CPU steps alone."""

    name = "onnxruntime"

    def __init__(self, required: bool = True) -> None:
        self._required = required

    @property
    def description(self) -> str:
        with forks.undisturbed():  # it imports the parser of a package's metadata
            from importlib.metadata import PackageNotFoundError, version

            try:
                return f"ONNX Runtime {version('onnxruntime')}"
            except PackageNotFoundError:  # under another name: onnxruntime-gpu …
                return "ONNX Runtime"

    def prepare(self, program: Program, constants: Constants) -> Prepared:
        """See ``engine.HostEngine``. NotSupportedError where ONNX Runtime can't be loaded."""
        if not any(isinstance(segment, HostSegment) for segment in program.segments):
            return Prepared()
        with forks.undisturbed():
            from . import onnx_engine
        return onnx_engine.prepare(program, constants, self._required)


def find_engine(choice: str = "auto") -> HostEngine:
    """The engine of a setting: "numpy", "onnxruntime", or "auto": ONNX Runtime where the extra
    ``cpu`` is installed. NotSupportedError where it was asked for and is not. Nothing is imported
    yet: that takes a third of a second."""
    missing = "" if choice == "numpy" else packages.problem("cpu_engine: onnxruntime needs", "cpu")
    if choice == "numpy" or (choice == "auto" and missing):
        return NUMPY
    if missing:
        raise NotSupportedError(missing)
    return OnnxEngine(required=choice == "onnxruntime")

"""Selects the engine for a setting."""

from __future__ import annotations

from webnn_vk.compiler.program import Constants, HostSegment, Program
from webnn_vk.support import forks, packages
from webnn_vk.support.errors import NotSupportedError

from .engine import NUMPY, HostEngine, Prepared, Refused


class OnnxEngine:
    """ONNX Runtime; see ``engine.HostEngine``. ``required``: NumPy must not replace it if it is
    broken. The modules that make its models are loaded only for programs with CPU steps."""

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

    def prepare(self, program: Program, constants: Constants, refused: Refused) -> Prepared:
        """See ``engine.HostEngine``. NotSupportedError if ONNX Runtime can't be loaded."""
        if not any(isinstance(segment, HostSegment) for segment in program.segments):
            return Prepared()
        with forks.undisturbed():
            from . import onnx_engine
        return onnx_engine.prepare(program, constants, refused, self._required)


def find_engine(choice: str = "auto") -> HostEngine:
    """The engine of a setting: "numpy", "onnxruntime", or "auto": ONNX Runtime if the extra ``cpu``
    is installed. NotSupportedError if it was requested and is not installed. Nothing is imported
    yet, as that takes a third of a second."""
    missing = "" if choice == "numpy" else packages.problem("cpu_engine: onnxruntime needs", "cpu")
    if choice == "numpy" or (choice == "auto" and missing):
        return NUMPY
    if missing:
        raise NotSupportedError(missing)
    return OnnxEngine(required=choice == "onnxruntime")

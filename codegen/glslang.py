"""Bindings of the libraries that contain glslang: GLSL to SPIR-V in this process.

A binding's ``compile`` returns the SPIR-V, or as text why there is none. None of them is
thread-safe: `compiler.LibraryCompiler` holds a lock. They raise `LOAD_ERRORS` where the library
can't be loaded or its version is unknown.
"""

from __future__ import annotations

import ctypes
import re
from pathlib import Path
from typing import Any, Protocol

from .glsl import SPIRV_VERSION, Source

LOAD_ERRORS = (OSError, AttributeError, ImportError, RuntimeError)
_P = ctypes.c_void_p


class Binding(Protocol):
    """A loaded library."""

    version: str

    def compile(self, source: Source) -> bytes | str: ...


# -- glslang's C interface

class _Version(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_int), ("minor", ctypes.c_int), ("patch", ctypes.c_int),
        ("flavor", ctypes.c_char_p),
    ]


class _Input(ctypes.Structure):
    # glslang_input_t, the same in glslang 11 to 16; the tail is room for what a later one appends.
    _fields_ = [
        ("language", ctypes.c_int), ("stage", ctypes.c_int), ("client", ctypes.c_int),
        ("client_version", ctypes.c_int), ("target_language", ctypes.c_int),
        ("target_language_version", ctypes.c_int), ("code", ctypes.c_char_p),
        ("default_version", ctypes.c_int), ("default_profile", ctypes.c_int),
        ("force_default_version_and_profile", ctypes.c_int), ("forward_compatible", ctypes.c_int),
        ("messages", ctypes.c_int), ("resource", ctypes.c_void_p),
        ("include_system", ctypes.c_void_p), ("include_local", ctypes.c_void_p),
        ("free_include_result", ctypes.c_void_p), ("callbacks_ctx", ctypes.c_void_p),
        ("reserved", ctypes.c_byte * 64),
    ]


_GLSL, _COMPUTE, _VULKAN, _SPV = 1, 5, 1, 1
_VULKAN_1_2 = (1 << 22) | (2 << 12)
_NO_PROFILE, _SPV_AND_VULKAN_RULES = 1, (1 << 3) | (1 << 4)
_KNOWN_MAJOR = range(11, 17)

_PROTOTYPES = {
    "glslang_initialize_process": ((), ctypes.c_int),
    "glslang_default_resource": ((), _P),
    "glslang_shader_create": ((_P,), _P),
    "glslang_shader_delete": ((_P,), None),
    "glslang_shader_preprocess": ((_P, _P), ctypes.c_int),
    "glslang_shader_parse": ((_P, _P), ctypes.c_int),
    "glslang_shader_get_info_log": ((_P,), ctypes.c_char_p),
    "glslang_program_create": ((), _P),
    "glslang_program_delete": ((_P,), None),
    "glslang_program_add_shader": ((_P, _P), None),
    "glslang_program_link": ((_P, ctypes.c_int), ctypes.c_int),
    "glslang_program_get_info_log": ((_P,), ctypes.c_char_p),
    "glslang_program_SPIRV_generate": ((_P, ctypes.c_int), None),
    "glslang_program_SPIRV_get_size": ((_P,), ctypes.c_size_t),
    "glslang_program_SPIRV_get_ptr": ((_P,), _P),
}


class Library:
    """A library with glslang's C interface."""

    def __init__(self, path: str) -> None:
        library = ctypes.CDLL(path)
        version = _library_version(library)
        self._calls = {}
        for name, (arguments, result) in _PROTOTYPES.items():
            self._calls[name] = function = library[name]
            function.argtypes, function.restype = arguments, result
        # Another major version may have another layout of the input: a crash, not an error.
        if version[0] not in _KNOWN_MAJOR:
            raise RuntimeError(f"glslang {version} is unknown")
        if not self._calls["glslang_initialize_process"]():
            raise RuntimeError("glslang does not start")
        self.version = f"glslang {'.'.join(map(str, version))} ({Path(path).name})"

    def compile(self, source: Source) -> bytes | str:
        calls = self._calls
        code = source.text.encode()
        major, minor = SPIRV_VERSION
        given = _Input(
            language=_GLSL, stage=_COMPUTE, client=_VULKAN, client_version=_VULKAN_1_2,
            target_language=_SPV, target_language_version=(major << 16) | (minor << 8), code=code,
            default_version=450, default_profile=_NO_PROFILE, messages=_SPV_AND_VULKAN_RULES,
            resource=calls["glslang_default_resource"](),
        )
        address = ctypes.addressof(given)
        shader = calls["glslang_shader_create"](address)
        program = None
        try:
            if not (calls["glslang_shader_preprocess"](shader, address)
                    and calls["glslang_shader_parse"](shader, address)):
                return _decode(calls["glslang_shader_get_info_log"](shader))
            program = calls["glslang_program_create"]()
            calls["glslang_program_add_shader"](program, shader)
            if not calls["glslang_program_link"](program, _SPV_AND_VULKAN_RULES):
                return _decode(calls["glslang_program_get_info_log"](program))
            calls["glslang_program_SPIRV_generate"](program, _COMPUTE)
            size = calls["glslang_program_SPIRV_get_size"](program)
            if not size:
                return "no SPIR-V was generated (is there a main?)"
            return ctypes.string_at(calls["glslang_program_SPIRV_get_ptr"](program), 4 * size)
        finally:
            if program:
                calls["glslang_program_delete"](program)
            calls["glslang_shader_delete"](shader)


def _decode(raw: bytes | bytearray | None) -> str:
    return (raw or b"").decode("utf-8", "replace")


def _library_version(library: ctypes.CDLL) -> tuple[int, int, int]:
    version = _Version()
    try:
        library["glslang_get_version"](ctypes.byref(version))
    except AttributeError:
        function = library["_ZN7glslang10GetVersionEv"]
        function.restype = _Version
        version = function()
    return version.major, version.minor, version.patch


# -- Slang
_Receive = ctypes.CFUNCTYPE(None, _P, ctypes.c_size_t, _P)
_COMPUTE_STAGE, _TO_SPIRV, _NOT_OPTIMISED, _NO_DEBUG_INFO = 6, 0, 0, 0


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


class SlangLibrary:
    """The library of the Slang compiler (``libslang-glslang``, which slangpy carries). It exports
    one C function of its own instead of glslang's C interface."""

    PREFIX = "libslang-glslang"

    def __init__(self, path: str) -> None:
        self._compile: Any = ctypes.CDLL(path)["glslang_compile_1_2"]
        self._compile.argtypes, self._compile.restype = (_P,), ctypes.c_int
        name = Path(path).name
        numbers = re.search(r"\d+(\.\d+)+", name)
        self.version = f"glslang of Slang {numbers[0] if numbers else '(version 1.2)'} ({name})"

    def compile(self, source: Source) -> bytes | str:
        spirv, log = bytearray(), bytearray()
        receivers = [
            _Receive(lambda data, size, _, into=into: into.extend(ctypes.string_at(data, size)))
            for into in (log, spirv)
        ]
        code = source.text.encode()
        held = ctypes.create_string_buffer(code, len(code) + 1)
        begin = ctypes.addressof(held)
        major, minor = SPIRV_VERSION
        request = _Request(
            size=ctypes.sizeof(_Request), source_path=source.name.encode(), begin=begin,
            end=begin + len(code), diagnostic=receivers[0], output=receivers[1],
            stage=_COMPUTE_STAGE, action=_TO_SPIRV, optimisation=_NOT_OPTIMISED,
            debug_info=_NO_DEBUG_INFO, spirv_major=major, spirv_minor=minor, spirv_patch=0,
            entry_point=b"main",
        )
        if self._compile(ctypes.addressof(request)) != 0 or not spirv:
            return _decode(log).strip() or "no SPIR-V was generated"
        return bytes(spirv)


def binding_of(path: str) -> type[Binding]:
    """The class that binds a library, by the name of its file."""
    return SlangLibrary if Path(path).name.startswith(SlangLibrary.PREFIX) else Library

"""glslang's C interface by ctypes: GLSL to SPIR-V in this process."""

from __future__ import annotations

import ctypes
from pathlib import Path

from .files import no_file_can_be_opened
from .glsl import TARGETS, CompilerUnavailable, GlslError, Source


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
_CLIENTS = {"vulkan1.2": (1 << 22) | (2 << 12), "vulkan1.3": (1 << 22) | (3 << 12)}
_NO_PROFILE, _SPV_AND_VULKAN_RULES = 1, (1 << 3) | (1 << 4)
_KNOWN_MAJOR = range(11, 17)

_P = ctypes.c_void_p
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
    """A loaded library. Not thread-safe: `LibraryCompiler` holds a lock."""

    def __init__(self, path: str) -> None:
        """Raises CompilerUnavailable when it cannot be loaded or is no glslang that we know."""
        try:
            library = ctypes.CDLL(path)
            version = _library_version(library)
            self._calls = {}
            for name, (arguments, result) in _PROTOTYPES.items():
                self._calls[name] = function = library[name]
                function.argtypes, function.restype = arguments, result
        except (OSError, AttributeError) as error:
            raise CompilerUnavailable(f"{path}: {error}", passing=no_file_can_be_opened()) from None
        # Another major version may have another layout of the input: a crash, not an error.
        if version[0] not in _KNOWN_MAJOR:
            raise CompilerUnavailable(f"{path}: glslang {version} is not one we know")
        if not self._calls["glslang_initialize_process"]():
            raise CompilerUnavailable(f"{path}: glslang does not start")
        self.version = f"glslang {'.'.join(map(str, version))} ({Path(path).name})"

    def compile(self, source: Source) -> bytes | GlslError:
        """SPIR-V, or why there is none."""
        calls = self._calls
        code = source.text.encode()
        major, minor = TARGETS[source.target]
        given = _Input(
            language=_GLSL, stage=_COMPUTE, client=_VULKAN, client_version=_CLIENTS[source.target],
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
                log = calls["glslang_shader_get_info_log"](shader)
                return GlslError(source.name, _decode(log), source.text)
            program = calls["glslang_program_create"]()
            calls["glslang_program_add_shader"](program, shader)
            if not calls["glslang_program_link"](program, _SPV_AND_VULKAN_RULES):
                log = calls["glslang_program_get_info_log"](program)
                return GlslError(source.name, _decode(log), source.text)
            calls["glslang_program_SPIRV_generate"](program, _COMPUTE)
            size = calls["glslang_program_SPIRV_get_size"](program)
            if not size:
                log = "no SPIR-V was generated (is there a main?)"
                return GlslError(source.name, log, source.text)
            return ctypes.string_at(calls["glslang_program_SPIRV_get_ptr"](program), 4 * size)
        finally:
            if program:
                calls["glslang_program_delete"](program)
            calls["glslang_shader_delete"](shader)


def _decode(raw: bytes | None) -> str:
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

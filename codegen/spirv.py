"""Reading and patching SPIR-V modules. Needs no compiler.

All functions treat their input as untrusted: bytes that are not SPIR-V raise SpirvError.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterator

from webnn_vk.support.dataclass import dataclass

MAGIC = 0x07230203

_CAPABILITIES = {
    0: "Matrix", 1: "Shader", 5: "Vector16", 9: "Float16", 10: "Float64", 11: "Int64",
    12: "Int64Atomics", 22: "Int16", 39: "Int8", 46: "SampledBuffer", 61: "GroupNonUniform",
    62: "GroupNonUniformVote", 63: "GroupNonUniformArithmetic", 64: "GroupNonUniformBallot",
    65: "GroupNonUniformShuffle", 66: "GroupNonUniformShuffleRelative",
    67: "GroupNonUniformClustered", 68: "GroupNonUniformQuad",
    4433: "StorageBuffer16BitAccess", 4434: "UniformAndStorageBuffer16BitAccess",
    4435: "StoragePushConstant16", 4448: "StorageBuffer8BitAccess",
    4449: "UniformAndStorageBuffer8BitAccess", 4450: "StoragePushConstant8",
    4464: "DenormPreserve", 4465: "DenormFlushToZero", 4466: "SignedZeroInfNanPreserve",
    4467: "RoundingModeRTE", 4468: "RoundingModeRTZ", 5345: "VulkanMemoryModel",
    5346: "VulkanMemoryModelDeviceScope", 5347: "PhysicalStorageBufferAddresses",
    6016: "DotProductInputAll", 6017: "DotProductInput4x8Bit",
    6018: "DotProductInput4x8BitPacked", 6019: "DotProduct", 6022: "CooperativeMatrixKHR",
}

#: Feature name -> (capability, execution mode, bits): float controls, core since SPIR-V 1.4.
FLOAT_CONTROLS = {
    "denorm_preserve_f16": (4464, 4459, 16), "denorm_preserve_f32": (4464, 4459, 32),
    "denorm_flush_f32": (4465, 4460, 32),
    "nan_preserve_f16": (4466, 4461, 16), "nan_preserve_f32": (4466, 4461, 32),
    "rounding_rte_f16": (4467, 4462, 16), "rounding_rte_f32": (4467, 4462, 32),
}

_OP_SOURCE_CONTINUED, _OP_SOURCE, _OP_SOURCE_EXTENSION, _OP_NAME, _OP_MEMBER_NAME = 2, 3, 4, 5, 6
_OP_STRING, _OP_LINE, _OP_EXTENSION, _OP_ENTRY_POINT, _OP_EXECUTION_MODE = 7, 8, 10, 15, 16
_OP_CAPABILITY, _OP_DECORATE = 17, 71
_OP_NO_LINE, _OP_MODULE_PROCESSED, _OP_EXECUTION_MODE_ID = 317, 330, 331
_DEBUG = frozenset({
    _OP_SOURCE_CONTINUED, _OP_SOURCE, _OP_SOURCE_EXTENSION, _OP_NAME, _OP_MEMBER_NAME, _OP_STRING,
    _OP_LINE, _OP_NO_LINE, _OP_MODULE_PROCESSED,
})
_DECORATION_SPEC_ID, _DECORATION_BINDING, _DECORATION_SET = 1, 33, 34
_MODE_LOCAL_SIZE = 17


class SpirvError(ValueError):
    """The bytes are not a SPIR-V module."""


@dataclass(frozen=True)
class ModuleInfo:
    """The description of a module: sizes in bytes, bindings as (set, binding) pairs."""

    version: tuple[int, int]
    bound: int
    size: int
    entry_point: str
    local_size: tuple[int, int, int]
    bindings: tuple[tuple[int, int], ...]
    constant_ids: tuple[int, ...]
    capabilities: frozenset[str]
    instructions: int


def words_of(spirv: bytes) -> array:
    """The words of a module, in the machine's byte order. Raises SpirvError."""
    if len(spirv) < 20 or len(spirv) % 4:
        raise SpirvError(f"{len(spirv)} bytes are no SPIR-V module")
    words = array("I", spirv)
    if words[0] != MAGIC:
        if struct.unpack_from(">I", spirv)[0] == MAGIC:
            words.byteswap()
        if words[0] != MAGIC:
            raise SpirvError(f"magic number {words[0]:#010x} instead of {MAGIC:#010x}")
    return words


def instructions(words: array) -> Iterator[tuple[int, int, int]]:
    """(opcode, position, end) of each instruction, positions in words."""
    position, size = 5, len(words)
    while position < size:
        word = words[position]
        end = position + (word >> 16)
        if end == position or end > size:
            raise SpirvError(f"instruction of {word >> 16} words at word {position} of {size}")
        yield word & 0xFFFF, position, end
        position = end


def _text(words: array, start: int, end: int) -> str:
    raw = b"".join(struct.pack("<I", word) for word in words[start:end])
    return raw.split(b"\0", 1)[0].decode("utf-8", "replace")


def capability_name(number: int) -> str:
    """The name of a capability, or its number as text if unknown."""
    return _CAPABILITIES.get(number, str(number))


def is_known_capability(number: int) -> bool:
    """Whether the library's shaders may need this capability."""
    return number in _CAPABILITIES


def info(spirv: bytes) -> ModuleInfo:
    """The `ModuleInfo` of a module. Raises SpirvError."""
    words = words_of(spirv)
    sets: dict[int, int] = {}
    bindings: dict[int, int] = {}
    constant_ids, declared, name, local, count = set(), set(), "", (1, 1, 1), 0
    for op, p, end in instructions(words):
        count += 1
        if op == _OP_CAPABILITY:
            declared.add(capability_name(words[p + 1]))
        elif op == _OP_ENTRY_POINT:
            name = _text(words, p + 3, end)
        elif op == _OP_EXECUTION_MODE and words[p + 2] == _MODE_LOCAL_SIZE and end - p >= 6:
            local = (words[p + 3], words[p + 4], words[p + 5])
        elif op == _OP_DECORATE and end - p == 4:
            target, decoration, value = words[p + 1], words[p + 2], words[p + 3]
            if decoration == _DECORATION_BINDING:
                bindings[target] = value
            elif decoration == _DECORATION_SET:
                sets[target] = value
            elif decoration == _DECORATION_SPEC_ID:
                constant_ids.add(value)
    if not name:
        raise SpirvError("the module has no entry point")
    pairs = sorted((sets.get(target, 0), binding) for target, binding in bindings.items())
    version = words[1]
    return ModuleInfo(
        ((version >> 16) & 0xFF, (version >> 8) & 0xFF), words[3], len(spirv), name,
        local, tuple(pairs), tuple(sorted(constant_ids)), frozenset(declared), count,
    )


def strip(spirv: bytes) -> bytes:
    """The module without names, source lines and other debug information."""
    words = words_of(spirv)
    kept = words[:5]
    for op, p, end in instructions(words):
        if op not in _DEBUG:
            kept += words[p:end]
    return _bytes(kept)


def add_float_controls(spirv: bytes, features: frozenset[str]) -> bytes:
    """The module with the execution modes for the float-control features.

    Other features than FLOAT_CONTROLS are ignored.
    """
    wanted = [FLOAT_CONTROLS[f] for f in sorted(features & FLOAT_CONTROLS.keys())]
    if not wanted:
        return spirv
    words = words_of(spirv)
    entry, after_capabilities, after_modes = None, 5, None
    present = set()
    for op, p, end in instructions(words):
        if op == _OP_CAPABILITY:
            present.add(words[p + 1])
            after_capabilities = end
        elif op == _OP_ENTRY_POINT:
            entry, after_modes = words[p + 2], end
        elif op in (_OP_EXECUTION_MODE, _OP_EXECUTION_MODE_ID):
            after_modes = end
    if entry is None:
        raise SpirvError("the module has no entry point")
    new_capabilities = sorted({capability for capability, _, _ in wanted} - present)
    patched = words[:after_capabilities]
    for capability in new_capabilities:
        patched.extend(((2 << 16) | _OP_CAPABILITY, capability))
    patched += words[after_capabilities:after_modes]
    for _, mode, bits in wanted:
        patched.extend(((4 << 16) | _OP_EXECUTION_MODE, entry, mode, bits))
    patched += words[after_modes:]
    return _bytes(patched)


def _bytes(words: array) -> bytes:
    if sys.byteorder == "big":
        words = array("I", words)
        words.byteswap()
    return words.tobytes()


def disassembled(spirv: bytes) -> str:
    """A module as text: by spirv-dis where it is installed, else `listing`. Raises SpirvError."""
    import shutil
    import subprocess

    info(spirv)
    program = shutil.which("spirv-dis")
    if program is None:
        return listing(spirv)
    done = subprocess.run([program, "--no-color", "-"], input=spirv, capture_output=True)
    if done.returncode:
        raise SpirvError(f"spirv-dis: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode()


def listing(spirv: bytes) -> str:
    """A minimal listing for machines without spirv-dis: header, opcode numbers and operands."""
    words = words_of(spirv)
    about = info(spirv)
    lines = [
        "; no spirv-dis found: a minimal listing (opcode number, then operand words)",
        f"; SPIR-V {about.version[0]}.{about.version[1]}, bound {about.bound}, {about.size} bytes",
        f"; entry point {about.entry_point!r}, local size {about.local_size}",
        f"; bindings {list(about.bindings)}, specialisation constants {list(about.constant_ids)}",
    ]
    for op, p, end in instructions(words):
        if op == _OP_CAPABILITY:
            lines.append(f"Capability {capability_name(words[p + 1])}")
        elif op in (_OP_NAME, _OP_EXTENSION):
            skip = 2 if op == _OP_NAME else 1
            lines.append(f"Op{op} {' '.join(f'%{w}' for w in words[p + 1:p + skip])} "
                         f'"{_text(words, p + skip, end)}"')
        else:
            lines.append(f"Op{op} " + " ".join(str(w) for w in words[p + 1:end]))
    return "\n".join(lines) + "\n"

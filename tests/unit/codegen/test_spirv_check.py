"""The structure of modules from caches and archives. No damaged module reaches a driver here: the
check alone has to refuse it."""

from __future__ import annotations

import struct
from array import array
from pathlib import Path

import pytest

from tests.support import selection
from tests.support.kernels import PRELUDE, compile_spec, templates
from webnn_vk.codegen import spirv, spirv_check
from webnn_vk.codegen.archive import write_archive
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.codegen.glsl import GlslError, Source
from webnn_vk.codegen.spec import Buffer, KernelSpec, Param
from webnn_vk.codegen.store import ShaderStore, address

KERNEL = PRELUDE + """\
shared float parts[64];
void main() {
  uint i = invocation_index();
  parts[gl_LocalInvocationIndex] = i < P.n ? load_a(i) : 0.0;
  barrier();
  float sum = 0;
  for (uint k = 0; k < 64; k++) sum += parts[k] * exp(float(k));
  switch (i & 3) { case 0: sum = -sum; break; case 1: sum = sqrt(sum); default: sum += 1; }
  if (i < P.n) store_out(i, sum);
}
"""
#: Instructions in the table that the library's kernels don't use.
WIDE = """#version 460
#extension GL_KHR_shader_subgroup_arithmetic : enable
#extension GL_KHR_shader_subgroup_shuffle : enable
#extension GL_KHR_memory_scope_semantics : enable
layout(local_size_x = 64) in;
layout(binding = 0) buffer A { uint data[]; };
layout(binding = 1) uniform samplerBuffer texels;
struct Pair { vec2 value; mat2 turn; };
float apply(in Pair pair, int i) { return (pair.turn * pair.value)[i] + dot(pair.value, vec2(1)); }
void main() {
  Pair pair = Pair(vec2(1, data[0]), mat2(1));
  uint old = atomicAdd(data[1], 3) + atomicCompSwap(data[2], 1, 2) + uint(data.length());
  float all = subgroupAdd(apply(pair, int(old & 1))) + subgroupShuffle(pair.value.y, 0);
  pair.turn[1] = pair.value.yx;
  data[3] = floatBitsToUint(all) + bitCount(old) + uint(any(isnan(pair.value)));
  if (subgroupElect()) data[4] = uint(findMSB(old)) ^ ~old;
  data[5] = uint(texelFetch(texels, 1).x);
  atomicStore(data[6], old, gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsRelease);
  data[7] = atomicLoad(data[6], gl_ScopeDevice, gl_StorageSemanticsBuffer, gl_SemanticsAcquire);
}
"""


@pytest.fixture(scope="module")
def spec() -> KernelSpec:
    return KernelSpec("checked.comp.j2", (Buffer("a", "float32"), Buffer("out", "float32", "w")),
                      (Param("n"),))


@pytest.fixture(scope="module")
def module(spec: KernelSpec) -> bytes:
    with templates(checked=KERNEL):
        return compile_spec(spec)


def words_of(module: bytes) -> array:
    return array("I", module)


def instruction(module: bytes, wanted: int) -> tuple[int, int]:
    """Start and end of the first instruction with an opcode."""
    return next((place, end) for op, place, end in spirv.instructions(words_of(module))
                if op == wanted)


def test_sound_modules_pass(module: bytes) -> None:
    spirv_check.check(module)
    spirv_check.check(spirv.add_float_controls(module, frozenset({"nan_preserve_f32"})))
    compiler = find_compiler()
    assert compiler is not None
    (wide,) = compiler.compile([Source(WIDE)])
    assert not isinstance(wide, GlslError), wide
    spirv_check.check(wide)
    spirv_check.check(spirv.strip(wide))


def changed(module: bytes, place: int, word: int) -> bytes:
    words = words_of(module)
    words[place] = word
    return words.tobytes()


def without(module: bytes, opcode: int) -> bytes:
    place, end = instruction(module, opcode)
    words = words_of(module)
    del words[place:end]
    return words.tobytes()


def twice(module: bytes, opcode: int) -> bytes:
    place, end = instruction(module, opcode)
    words = words_of(module)
    return (words[:end] + words[place:end] + words[end:]).tobytes()


def moved_to_the_front(module: bytes, opcode: int) -> bytes:
    place, end = instruction(module, opcode)
    words = words_of(module)
    return (words[:5] + words[place:end] + words[5:place] + words[end:]).tobytes()


def shortened(module: bytes, opcode: int, length: int) -> bytes:
    """The first instruction of this kind keeps ``length`` words."""
    place, end = instruction(module, opcode)
    words = words_of(module)
    words[place] = length << 16 | opcode
    del words[place + length:end]
    return words.tobytes()


def repeated_as(module: bytes, opcode: int) -> bytes:
    """The first addition is there once more before it, as another instruction."""
    place, end = instruction(module, ADD)
    words = words_of(module)
    words[place:place] = array("I", [5 << 16 | opcode, *words[place + 1 : end]])
    return words.tobytes()


CAPABILITY, MEMORY_MODEL, ENTRY_POINT, TYPE_FLOAT, TYPE_POINTER, FUNCTION, FUNCTION_END = (
    17, 14, 15, 22, 32, 54, 56)
LABEL, ADD, LOAD, DECORATE, BRANCH = 248, 129, 61, 71, 249


@pytest.mark.parametrize(("damage", "message"), [
    (lambda m: b"", "0 bytes are no SPIR-V module"),
    (lambda m: m[:16], "16 bytes are no"),
    (lambda m: m[:-2], "are no SPIR-V module"),
    (lambda m: b"\x7fELF" + m[4:], "magic number"),
    (lambda m: struct.pack(f">{len(m) // 4}I", *struct.unpack(f"<{len(m) // 4}I", m)),
     "wrong byte order"),
    (lambda m: changed(m, 1, 0x20000), "version 0x20000 is unknown"),
    (lambda m: changed(m, 3, 0), "a bound of 0 ids"),
    (lambda m: changed(m, 3, 0xFFFFFFFF), "a bound of 4294967295 ids"),
    (lambda m: changed(m, 3, 7), "not below the bound of 7"),
    (lambda m: changed(m, 4, 1), "the schema is 1"),
    (lambda m: changed(m, 5, 17), "instruction 17 of 0 words at word 5"),
    (lambda m: changed(m, 5, 0xFFFF0011), "instruction 17 of 65535 words at word 5"),
    (lambda m: m[:-4], "the last function has no end"),
    (lambda m: m + struct.pack("<I", 2 << 16 | 17) + struct.pack("<I", 1), "misplaced"),
    (lambda m: changed(m, instruction(m, CAPABILITY)[0] + 1, 4444), "capability 4444 is not sup"),
    (lambda m: without(m, ENTRY_POINT), "no entry point"),
    (lambda m: twice(m, ENTRY_POINT), "a second entry point"),
    (lambda m: changed(m, instruction(m, ENTRY_POINT)[0] + 1, 4), "not of a compute shader"),
    (lambda m: shortened(m, ENTRY_POINT, 2), "not of a compute shader"),
    (lambda m: shortened(m, ENTRY_POINT, 3), "not of a compute shader"),
    (lambda m: changed(m, instruction(m, ENTRY_POINT)[0] + 2,
                       words_of(m)[instruction(m, TYPE_FLOAT)[0] + 1]), "is not a function"),
    (lambda m: without(m, MEMORY_MODEL), "no memory model"),
    (lambda m: twice(m, MEMORY_MODEL), "a second memory model"),
    (lambda m: moved_to_the_front(m, DECORATE), "misplaced"),
    (lambda m: moved_to_the_front(m, ADD), "misplaced"),
    (lambda m: without(m, TYPE_FLOAT), "is used as a type, but is not one"),
    (lambda m: twice(m, TYPE_FLOAT), "an id is defined twice"),
    *((lambda m, opcode=opcode: repeated_as(m, opcode), "an id is defined twice")
      for opcode in (ADD, *range(164, 168))),  # and of logical values
    (lambda m: without(m, FUNCTION), "misplaced"),
    (lambda m: without(m, FUNCTION_END), "has no end|misplaced"),
    (lambda m: without(m, LABEL), "misplaced"),
    (lambda m: without(m, LOAD), "is used and not defined"),
    (lambda m: without(m, BRANCH), "misplaced"),
    (lambda m: changed(m, instruction(m, ADD)[0] + 3, 0x7FFFFFFF), "%2147483647 is used and not"),
    (lambda m: changed(m, instruction(m, LOAD)[0] + 1,
                       words_of(m)[instruction(m, LOAD)[0] + 2]), "as a type, but is not one"),
])
def test_what_is_refused(module: bytes, damage: object, message: str) -> None:
    with pytest.raises(spirv.SpirvError, match=message):
        spirv_check.check(damage(module))


def test_flipped_bits_raise_nothing_else(module: bytes) -> None:
    """Each bit of the header and of the first instructions, and random bits: refused with a reason,
    or still of a sound structure, which other readers of modules can rely on."""
    chance = selection.chance("flipped bits")
    flips = [*range(160 * 8), *(chance.randrange(len(module) * 8) for _ in range(4000))]
    refused = 0
    for bit in flips:
        damaged = bytearray(module)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            spirv_check.check(bytes(damaged))
        except spirv.SpirvError as error:
            assert str(error)
            refused += 1
        else:
            assert spirv.info(bytes(damaged)).size == len(module)
            spirv.strip(bytes(damaged))
    assert refused > len(flips) / 2, refused


@pytest.mark.parametrize("seed", range(3))
def test_random_words_and_splices(module: bytes, seed: int) -> None:
    """Words changed, removed, doubled and shuffled."""
    chance = selection.chance("splices", seed)
    for _ in range(500):
        words = words_of(module)
        for _ in range(chance.randint(1, 4)):
            place, length = chance.randrange(len(words)), chance.randint(1, 12)
            match chance.randrange(4):
                case 0:
                    words[place] = chance.choice([0, 1, 0xFFFFFFFF, chance.getrandbits(32)])
                case 1:
                    del words[place : place + length]
                case 2:
                    words = words[: place + length] + words[place:]
                case 3:
                    words[place : place + length] = words[place : place + length][::-1]
        try:
            spirv_check.check(words.tobytes())
        except spirv.SpirvError:
            continue
        spirv.info(words.tobytes())


def test_the_time_is_bounded_by_the_size() -> None:
    """Headers that declare huge sizes, instructions of one word. Quadratic work would take longer
    than a test may."""
    header = struct.pack("<5I", spirv.MAGIC, 0x10500, 0, 100, 0)
    for body in (struct.pack("<I", 1 << 16) * 500_000, struct.pack("<I", 1 << 16 | 253) * 500_000):
        with pytest.raises(spirv.SpirvError):
            spirv_check.check(header + body)
    with pytest.raises(spirv.SpirvError, match="too many for a shader"):
        spirv_check.check(header + bytes(20 << 20))


def test_a_forged_pack_is_not_used(module: bytes, spec: KernelSpec, tmp_path: Path) -> None:
    """Its hashes are correct, by construction. The compiler's module replaces it."""
    forged = changed(module, instruction(module, ADD)[0] + 3, 0x7FFFFFFF)
    with templates(checked=KERNEL):
        write_archive({address(spec): forged}, tmp_path / "pack", {})
        store = ShaderStore(None, pack=tmp_path / "pack")
        with pytest.warns(RuntimeWarning, match="shader of the archive .* not used: %2147483647"):
            assert store.get([spec]) == [module]
        assert store.origins == {"pack": 0, "cache": 0, "compiler": 1}


def test_a_forged_entry_of_the_cache_is_replaced(
    module: bytes, spec: KernelSpec, tmp_path: Path
) -> None:
    forged = changed(module, instruction(module, ADD)[0] + 3, 0x7FFFFFFF)
    with templates(checked=KERNEL):
        for wrong in (True, False):
            store = ShaderStore(tmp_path, pack=None)
            assert store.get([spec]) == [module]
            assert store.origins["compiler"] == 1
            (entry,) = (tmp_path / "spirv").iterdir()
            if wrong:  # with the hash that it needs
                import hashlib

                head = entry.read_bytes()[: -len(module) - 32]
                entry.write_bytes(head + hashlib.sha256(forged).digest() + forged)
        assert ShaderStore(tmp_path, pack=None).get([spec]) == [module]

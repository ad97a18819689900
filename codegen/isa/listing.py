"""AMD's assembly as text → blocks → instructions by class, for GFX9 to GFX11.

The text is written by LLVM's disassembler for RADV: labels ``BB12:``, one instruction per line with
its encoding after ``;``. GFX11 has other names for the same things (``ds_load_b128`` for
``ds_read_b128``, ``global_load_b128`` for ``global_load_dwordx4``) and two operations in one
instruction (``v_dual_fmac_f32 … :: v_dual_mul_f32 …``).
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from enum import Enum

from webnn_vk.support.dataclass import dataclass


class Kind(Enum):
    """The unit that issues an instruction, as far as it matters for the speed of a kernel."""

    #: Floating-point multiply-adds and dot products.
    FMA = "fma"
    #: Every other instruction of the vector unit.
    VECTOR = "vector"
    #: Shared memory.
    LDS = "lds"
    #: Loads, stores and atomics of buffers, and scratch memory.
    MEMORY = "memory"
    #: Loads through the scalar cache: parameters and descriptors.
    SCALAR_MEMORY = "scalar_memory"
    SCALAR = "scalar"
    BRANCH = "branch"
    #: Waits for memory, and barriers.
    WAIT = "wait"
    #: Control of the issue: clauses, delays, cache control, the end of the program.
    CONTROL = "control"


_FMA = re.compile(r"v_(?:pk_|dual_)?(?:fma|fmac|mac|mad|dot)[a-z0-9]*(?:_|$)")
# Integer multiply-adds compute addresses.
_INTEGER_MAD = re.compile(r"v_(?:pk_)?mad_[a-z]*_?[iu](?:16|24|32|64)")
_CONTROL = re.compile(
    r"s_(?:nop|clause|delay_alu|endpgm|inst_prefetch|set_inst_prefetch_distance|sleep|code_end|"
    r"icache_inv|dcache_inv|dcache_wb|sendmsg|setprio|round_mode|denorm_mode|ttracedata)"
    r"|buffer_(?:gl\d_inv|wbinvl1|wbl2|inv)"
)
_WIDTHS = {"byte": 1, "ubyte": 1, "sbyte": 1, "short": 2, "ushort": 2, "sshort": 2, "dword": 4}
_LINE = re.compile(r"\s+(?P<opcode>[a-z][a-z0-9_]*)(?P<operands>[^;]*)")
# Tables that the shader reads; they follow the code.
_CONSTANTS = "/* constant data */"
_TARGET = re.compile(r"BB(\d+)")
_LABEL = re.compile(r"BB(\d+):")
_REPEATED = re.compile(r"\s*\(then repeated (\d+) times\)")


@dataclass(frozen=True)
class Instruction:
    """One instruction. ``width``: bytes per lane, for LDS and memory; ``multiply_adds``: how many
    each lane does; ``target``: the block that a branch goes to."""

    opcode: str
    operands: str
    kind: Kind
    width: int = 0
    multiply_adds: int = 0
    stores: bool = False
    target: int | None = None


@dataclass(frozen=True)
class Block:
    """The instructions from label ``BB<number>`` to the next label."""

    number: int
    instructions: tuple[Instruction, ...]

    @property
    def targets(self) -> tuple[int, ...]:
        """The blocks that its branches go to, besides the following one."""
        return tuple(i.target for i in self.instructions if i.target is not None)


def parse(text: str) -> tuple[Block, ...]:
    """The blocks of a listing in order. ValueError for a line that is not an instruction."""
    blocks: list[tuple[int, list[Instruction]]] = []
    for line in text.splitlines():
        if line.startswith(_CONSTANTS):
            break
        label = _LABEL.match(line)
        if label:
            blocks.append((int(label[1]), []))
        elif found := _LINE.match(line):
            if not blocks:
                blocks.append((0, []))
            blocks[-1][1].append(_instruction(found["opcode"], found["operands"].strip()))
        elif (again := _REPEATED.match(line)) and blocks and blocks[-1][1]:
            # The driver writes repeated instructions once.
            blocks[-1][1].extend(blocks[-1][1][-1:] * int(again[1]))
        elif line.strip() and not line.lstrip().startswith((";", "//")):
            raise ValueError(f"no instruction: {line!r}")
    return tuple(Block(number, tuple(instructions)) for number, instructions in blocks)


def _instruction(opcode: str, operands: str) -> Instruction:
    kind, width, multiply_adds, stores = _classified(opcode)
    target = None
    if kind is Kind.BRANCH:
        label = _TARGET.search(operands)
        target = int(label[1]) if label else None
    elif "::" in operands:
        # Two operations in one instruction; the name of the second is among the operands.
        second = _classified(operands.split("::")[1].split()[0])
        multiply_adds += second[2]
        kind = Kind.FMA if multiply_adds else kind
    return Instruction(opcode, operands, kind, width, multiply_adds, stores, target)


@functools.cache
def _classified(opcode: str) -> tuple[Kind, int, int, bool]:
    """Kind, width, multiply-adds, and whether it writes memory."""
    if opcode.startswith("ds_"):
        return Kind.LDS, _lds_width(opcode), 0, _stores(opcode)
    if _CONTROL.match(opcode):
        return Kind.CONTROL, 0, 0, False
    if opcode.startswith(("buffer_", "global_", "flat_", "scratch_", "tbuffer_", "image_")):
        return Kind.MEMORY, _memory_width(opcode), 0, _stores(opcode)
    if opcode.startswith("v_"):
        done = _multiply_adds(opcode)
        return Kind.FMA if done else Kind.VECTOR, 0, done, False
    if opcode.startswith(("s_waitcnt", "s_barrier", "s_wait_")):
        return Kind.WAIT, 0, 0, False
    if opcode.startswith(("s_branch", "s_cbranch")):
        return Kind.BRANCH, 0, 0, False
    if opcode.startswith(("s_load", "s_buffer_load", "s_store", "s_atomic")):
        return Kind.SCALAR_MEMORY, 0, 0, False
    if opcode.startswith("s_"):
        return Kind.SCALAR, 0, 0, False
    raise ValueError(f"unknown instruction {opcode}")


def _multiply_adds(opcode: str) -> int:
    if not _FMA.match(opcode) or _INTEGER_MAD.match(opcode):
        return 0
    terms = re.match(r"v_dot(\d+)", opcode)
    if terms:
        return int(terms[1])
    return 2 if opcode.startswith("v_pk_") else 1


def _stores(opcode: str) -> bool:
    return "store" in opcode or "write" in opcode or "atomic" in opcode


def _lds_width(opcode: str) -> int:
    bits = re.search(r"_[biuf](\d+)(?:_|$)", opcode)
    if bits is None:
        return 4  # permutations of lanes, which use the LDS's crossbar
    # Two addresses in one instruction: ds_read2_b32, ds_load_2addr_stride64_b64.
    twice = 2 if re.match(r"ds_(?:read2|write2)|ds_(?:load|store)_2addr", opcode) else 1
    return int(bits[1]) // 8 * twice


def _memory_width(opcode: str) -> int:
    words = re.search(r"_(ubyte|sbyte|byte|ushort|sshort|short|dword)(?:x(\d))?(?:_|$)", opcode)
    if words:
        return _WIDTHS[words[1]] * int(words[2] or 1)
    if "format" in opcode:
        return 4 * len(re.findall(r"[xyzw]", opcode.rsplit("_", 1)[1]))
    if "d16" in opcode and not re.search(r"_[biu]8", opcode):
        return 2
    bits = re.search(r"_[biuf](\d+)(?:_|$)", opcode)
    if bits:
        return int(bits[1]) // 8
    # Atomics of GFX9 and GFX10: global_atomic_add, global_atomic_cmpswap_x2.
    return 8 if opcode.endswith("_x2") else 4


@dataclass(frozen=True)
class Mix:
    """Numbers of instructions by kind, multiply-adds per lane, and LDS and memory instructions by
    bytes per lane."""

    instructions: int
    kinds: Counter[Kind]
    multiply_adds: int
    lds: Counter[int]
    loads: Counter[int]
    stores: Counter[int]


def mix(blocks: Iterable[Block]) -> Mix:
    """The mix of a listing or a loop; each block is counted once."""
    found = [i for block in blocks for i in block.instructions]
    memory = [i for i in found if i.kind is Kind.MEMORY]
    return Mix(
        len(found),
        Counter(i.kind for i in found),
        sum(i.multiply_adds for i in found),
        Counter(i.width for i in found if i.kind is Kind.LDS),
        Counter(i.width for i in memory if not i.stores),
        Counter(i.width for i in memory if i.stores),
    )


def loops(blocks: Sequence[Block]) -> list[tuple[Block, ...]]:
    """The loops: the blocks from the target of a backward branch to the branch. Outer loops include
    the blocks of inner ones."""
    found = []
    for last, block in enumerate(blocks):
        for first in range(last + 1):
            if blocks[first].number in block.targets:
                found.append(tuple(blocks[first : last + 1]))
    return found


def main_loop(blocks: Sequence[Block]) -> tuple[Block, ...]:
    """The innermost loop with the most multiply-adds; no blocks where no loop has any."""
    candidates = [(mix(loop).multiply_adds, -len(loop), loop) for loop in loops(blocks)]
    best = max(candidates, key=lambda each: each[:2], default=(0, 0, ()))
    return best[2] if best[0] else ()


def fma_share(loop: Mix) -> float:
    """The share of multiply-adds in the instructions of vector unit, shared memory and memory."""
    issued = sum(
        loop.kinds[kind] for kind in (Kind.FMA, Kind.VECTOR, Kind.LDS, Kind.MEMORY)
    )
    return loop.kinds[Kind.FMA] / issued if issued else 0.0

"""Attention in one pass over the keys: what is summed fades as larger scores come, so that the
matrix of scores is never stored.

There are two ways: ``attention`` reads keys and values from memory for each query, and serves all;
``attention_tiled`` multiplies tiles in shared memory, for operands that are read in vectors of 4.
Of few queries, subgroups or workgroups divide the keys (``attention`` too); ``attention_join`` adds
up the sums of workgroups.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import VECTOR_BYTES, ceil_divide, padded

from ..types.access import Access, collapse
from ..types.data_types import DATA_TYPES
from ..types.sizes import preferring
from .dispatch import Dispatch, Scratch, Unsupported, is_workgroup, workgroup
from .epilogue import build, nothing
from .family import Family
from .heuristics import device_class
from .loads import (
    SHUFFLES,
    SUBGROUP_SUMS,
    lanes_of_processor,
    texel_bytes,
    with_subgroup_sums,
)
from .multi_binding import Bound, bound, dispatch
from .node import KernelNode
from .product import BATCH_RANK
from .rows import check_iterations
from .schedule import SPLIT, Schedule

#: Schedules of the template ``attention`` whose modules the shader archive has no room for.
PARTED = "attention_parted"
_OPTIONAL = ("mask", "seen")
_SCALARS = (*_OPTIONAL, "length")
_FLOATS = dict.fromkeys(("scale", "unseen", "softcap"), "float")
#: Invocations along the keys and along the queries of a workgroup, queries of an invocation.
_TILES = ((8, 1, 8), (8, 1, 4), (16, 8, 4), (16, 4, 4), (16, 8, 2), (32, 1, 1))
#: More of them for processors, which compute rows past the last at full length.
_FEW_QUERIES = ((8, 1, 2), (8, 1, 1))
#: Of few queries on GPUs: queries of a subgroup, how many subgroups of a workgroup divide the keys,
#: or else how many workgroups of one subgroup.
_PART_LANES, _PART_QUERIES, _PARTS = 32, (1, 2, 4, 8), (2, 4, 8, 16)
_PIECES = 4, 8, 16, 32, 64, 128, 256
#: Vectors of each of 4 keys that are loaded before they are used, where registers hold them.
_AHEAD = 8, 4, 2
#: The same for tiles in shared memory, and elements of depth that a tile has; vectors of columns of
#: an invocation. With 8 queries or 4 vectors GFX1100 spills 38 to 119 registers.
_SHARED_TILES = ((8, 8, 2, 16), (8, 8, 4, 16), (16, 8, 4, 16), (16, 16, 4, 16))
_SHARED_COLUMNS = 2
#: The features with which the lanes of a subgroup exchange scores and weights.
_EXCHANGES = SUBGROUP_SUMS | SHUFFLES


@dataclass(frozen=True)
class AttentionProblem:
    """``rows`` queries, ``keys`` keys of ``depth`` elements and values of ``width``, ``batches``
    times. ``vector``: whether the operands can be read 4 elements at a time. ``bounded``: an
    operand says how many keys are valid. ``capped``: scores are bounded smoothly.
    ``largest``: bytes of the largest operand."""

    rows: int
    keys: int
    depth: int
    width: int
    batches: int
    vector: bool
    causal: bool
    data_type: str
    bounded: bool = False
    capped: bool = False
    largest: int = 0

    def texel_lanes(self, profile: DeviceProfile) -> int:
        """How many invocations read texels and exchange what they have as a subgroup, 0: none do.
        On processors, which compute attention over a cache alone (no pass makes others)."""
        wanted = self.bounded and self.vector and self.data_type == "float32"
        fits = wanted and self.largest <= texel_bytes(profile)
        return lanes_of_processor(profile, _EXCHANGES) if fits else 0


class AttentionFamily(Family):
    """See the module's docstring."""

    name = "attention"
    templates = ("attention", "attention_tiled", "attention_join")
    fuses = True

    def takes(self, node: KernelNode, operand: str) -> bool:
        access = node.operands[operand]
        if min(access.strides, default=0) < 0:
            return False
        if operand == "length":
            return access.is_dense and access.offset == 0
        return operand in _OPTIONAL or access.shape[-1] == 1 or access.strides[-1] == 1

    def stores(self, node: KernelNode) -> bool:
        out = node.output
        if not out.is_permutation or out.size != out.value.descriptor.size:
            return False
        shape = node.results[0].shape
        if out.shape[-1] != shape[-1] or out.strides[-1] != 1:
            return False
        return _spread(out, shape) is not None

    def problem(self, node: KernelNode) -> AttentionProblem:
        query, value, shape = node.operands["query"], node.operands["value"], node.results[0].shape
        depth, keys, rows, width = query.shape[-1], value.shape[-2], shape[-2], shape[-1]
        batches = node.results[0].size // (rows * width)
        plain = all(
            not any(s % 4 for s in (*a.strides[:-1], a.offset, a.shape[-1]))
            for a in _main(node)
        )
        return AttentionProblem(
            rows, keys, depth, width, batches, plain, node.arguments["causal"], query.data_type,
            "length" in node.operands, node.arguments["softcap"] > 0,
            max(padded(a.value.descriptor.byte_length) for a in _main(node)[:3]),
        )

    def candidates(
        self, problem: AttentionProblem, profile: DeviceProfile
    ) -> Sequence[Schedule]:
        schedules = []
        more = _FEW_QUERIES if profile.device_type == "cpu" else ()
        for lanes, high, tall in (*_TILES, *more):
            wide = ceil_divide(problem.width, 4 * lanes)
            if (
                lanes * high <= profile.max_workgroup_invocations
                and shared_bytes(lanes, high * tall) <= profile.max_shared_memory
                # More than these sums would not stay in registers.
                and (tall * wide <= 16 or tall == 1)
            ):
                numbers = (("LX", lanes), ("LY", high), ("TM", tall), ("TE", wide))
                by_texel = high == 1 and lanes == problem.texel_lanes(profile)
                schedules += [
                    Schedule("attention", numbers, load)
                    for load in ("storage", *["texel"] * by_texel)
                ]
        return schedules + _parted(problem, profile) + _tiled(problem, profile)

    def lower(
        self, node: KernelNode, problem: AttentionProblem, schedule: Schedule,
        profile: DeviceProfile,
    ) -> list[Dispatch]:
        p, tile, tiled = problem, 4 * schedule["LX"], schedule.kernel == "attention_tiled"
        if tiled:
            steps = ceil_divide(p.depth, schedule["DC"]) + ceil_divide(tile, schedule["VC"])
        else:
            steps = (p.depth // 4 if p.vector else p.depth) + tile // 4
            steps += schedule["LX"] * schedule["TM"]
        parts, pieces = dict(schedule.numbers).get("LZ", 1), schedule.parts
        check_iterations(ceil_divide(p.keys, parts * pieces * tile) * steps, profile)
        present = [name for name in _OPTIONAL if name in node.operands]
        texels = texel_bytes(profile, schedule.load)
        operands = [
            *(bound(name, node.operands[name], profile, texels=texels)
              for name in ("query", "key", "value")),
            *(bound(name, node.operands[name], profile)
              for name in (*present, *(["length"] * p.bounded))),
        ]
        out = bound("out", node.output, profile, "w")
        out_vector = p.vector and DATA_TYPES[node.out_type].size <= 4
        if p.vector:
            operands = [o if o.buffer.name in _SCALARS else o.in_vectors() for o in operands]
        if out_vector:
            out = out.in_vectors()
        options = {
            "out_vector": out_vector, "masked": "mask" in present, "choosing": "seen" in present,
            "bounded": p.bounded,
        }
        constants = dict(schedule.of_part.numbers)
        params, epilogue = _params(node, p, present), build(node)
        rows = schedule["LY"] * schedule["TM"]
        if tiled:
            # Whether tiles reach past the last element.
            constants["RAGGED"] = int(p.depth % schedule["DC"] != 0)
            # Numbers, not options: the archive has no room for a module of each.
            constants["CAPPED"] = int(p.capped)
            params |= {"softcap": node.arguments["softcap"], "behind": p.rows * p.causal}
        else:
            options |= {
                "causal": p.causal, "vector": p.vector, "capped": p.capped, "parted": parts > 1,
                "split": pieces > 1, "ahead": "AHEAD" in constants,
            }
            if p.capped:
                params["softcap"] = node.arguments["softcap"]
            if p.causal and not p.bounded:
                params["ahead"] = p.keys - p.rows
            if "AHEAD" in constants:
                constants["QUERY"] = p.depth // 4
        if pieces > 1:
            sums = Scratch(scratch_bytes(p, pieces))
            join = _join(node, p, pieces, sums, out, profile)
            params["pieces"], epilogue = pieces, nothing("float32")
            out = bound("part", sums, profile, "w", width=4)
        step = dispatch(
            node, "attention_tiled" if tiled else "attention", [*operands, out], epilogue,
            pieces * p.batches * ceil_divide(p.rows, rows),
            params, constants, profile, options.items(), types=_FLOATS,
            variant=f"{'sv'[p.vector]}{'x' * (texels > 0)} {rows}x{tile}{' causal' * p.causal}"
            f"{' of a length' * p.bounded}{' capped' * p.capped}",
            flops=p.batches * p.rows * p.keys * (2 * p.depth + 2 * p.width + 5),
        )
        if tiled:
            return [step]
        if pieces > 1:
            return [with_subgroup_sums(step, 0, profile), join]
        return [with_subgroup_sums(step, schedule["LX"], profile, _EXCHANGES)]


def shared_bytes(lanes: int, rows: int, wide: int = 1) -> int:
    """Shared memory of a workgroup: the weights, with a vector more a row, or the sums of parts of
    ``wide`` vectors a lane, and the largest."""
    return rows * (max(lanes + 1, lanes * wide) * VECTOR_BYTES + lanes * 4)


def scratch_bytes(p: AttentionProblem, pieces: int) -> int:
    """Memory of the sums of ``pieces`` workgroups, which ``attention_join`` reads."""
    return p.batches * p.rows * pieces * (ceil_divide(p.width, 4) + 1) * VECTOR_BYTES


def _join(
    node: KernelNode, p: AttentionProblem, pieces: int, sums: Scratch, out: Bound,
    profile: DeviceProfile,
) -> Dispatch:
    """The dispatch that adds up what workgroups have stored for their pieces of the keys."""
    columns, lanes = ceil_divide(p.width, 4), workgroup(profile, 64)
    params = {
        "rows": p.rows, "width": p.width, "batches": p.batches, "pieces": pieces,
        **{name: value for name, value in _params(node, p, ()).items()
           if name in ("out_base", "out_row", "out_batch", "batch_sizes")},
    }
    return dispatch(
        node, "attention_join", [bound("part", sums, profile, width=4), out], build(node),
        ceil_divide(p.batches * p.rows * columns, lanes), params,
        {"LX": lanes, "AHEAD": min(pieces, _AHEAD[0])}, profile,
        [("out_vector", out.buffer.width == 4)],
        variant=f"{pieces} parts", flops=p.batches * p.rows * pieces * (2 * p.width + 5),
    )


def tiled_bytes(lanes: int, rows: int, wide: int, steps: int, values: int) -> int:
    """Shared memory of a workgroup that has tiles of ``rows`` queries: of queries and keys,
    ``steps`` elements of each and a vector more a row, or else of ``values`` rows of ``wide``
    vectors a lane; the weights, and a number a lane and row."""
    tile = max((rows + 4 * lanes) * (steps // 4 + 1), values * lanes * wide)
    return (tile + rows * (lanes + 1)) * VECTOR_BYTES + rows * lanes * 4


def _parted(problem: AttentionProblem, profile: DeviceProfile) -> list[Schedule]:
    """Schedules in which subgroups or workgroups divide the keys: few queries make few workgroups,
    and each key waits for the one before."""
    if profile.device_type == "cpu":
        return []
    lanes = _PART_LANES
    # Before the queries, whose number divides shapes that share a compilation otherwise.
    counts = [(parts, 1) for parts in _PARTS if 2 * lanes * parts < problem.keys]
    if not counts or problem.rows > _PART_QUERIES[-1]:
        return []
    with preferring():  # pieces may be empty
        counts += [(1, pieces) for pieces in _PIECES if 4 * lanes * (pieces - 1) < problem.keys]
    schedules, wide = [], ceil_divide(problem.width, 4 * lanes)
    most = device_class(profile).shared_memory(profile)
    for tall, (parts, pieces) in itertools.product(_PART_QUERIES, counts):
        queries = tall * problem.depth * 4 * problem.vector
        if (
            tall < 2 * problem.rows
            and tall * wide <= 16
            and is_workgroup(lanes, parts, profile) and parts <= profile.max_workgroup_size[2]
            and shared_bytes(lanes, parts * tall, wide) + queries <= most
            and scratch_bytes(problem, pieces) <= profile.max_storage_buffer_range
        ):
            numbers = ("LX", lanes), ("LY", 1), ("LZ", parts), ("TM", tall), ("TE", wide)
            schedules.append(Schedule(PARTED, (
                *numbers, *_ahead(problem, tall * (4 * wide + 4), profile),
                *([(SPLIT, pieces)] if pieces > 1 else ()),
            )))
    return schedules


def _ahead(
    problem: AttentionProblem, registers: int, profile: DeviceProfile
) -> list[tuple[str, int]]:
    """How many vectors of a key are loaded at once, if keys are read in vectors, beside values that
    take these registers."""
    room = (device_class(profile).max_registers - registers) // 16
    fitting = (n for n in _AHEAD if problem.vector and n <= room and not problem.depth % (4 * n))
    return [("AHEAD", n) for n in itertools.islice(fitting, 1)]


def _tiled(problem: AttentionProblem, profile: DeviceProfile) -> list[Schedule]:
    """Schedules with tiles in shared memory."""
    if not problem.vector:
        return []
    schedules, most = [], device_class(profile).shared_memory(profile)
    for lanes, high, tall, steps in _SHARED_TILES:
        # Powers of 2 divide the number of invocations.
        wide = 1 << (ceil_divide(problem.width, 4 * lanes) - 1).bit_length()
        rows = high * tall
        # As many values as lie in the room of the queries and keys.
        room = (rows + 4 * lanes) * (steps // 4 + 1) // (lanes * wide)
        values = next((n for n in (4 * lanes, 2 * lanes, lanes, 8, 4) if n <= room), 0)
        if (
            values
            and lanes * high <= profile.max_workgroup_invocations
            and tiled_bytes(lanes, rows, wide, steps, values) <= most
            and wide <= _SHARED_COLUMNS
        ):
            numbers = (
                ("LX", lanes), ("LY", high), ("TM", tall), ("TE", wide), ("DC", steps),
                ("VC", values),
            )
            schedules.append(Schedule("attention_tiled", numbers))
    return schedules


def _main(node: KernelNode) -> tuple[Access, ...]:
    return (*(node.operands[name] for name in ("query", "key", "value")), node.output)


def _spread(access: Access, shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """The strides by which ``access``, written in any dimensions, walks through ``shape``; None
    where strides can't express that."""
    if access.shape == shape:
        return access.strides
    strides, position = [0] * len(shape), len(access.shape) - 1
    for axis in reversed(range(len(shape))):
        if shape[axis] == 1:
            continue
        while position >= 0 and access.shape[position] == 1:
            position -= 1
        if position < 0 or access.shape[position] != shape[axis]:
            return None
        strides[axis] = access.strides[position]
        position -= 1
    return tuple(strides)


def _params(
    node: KernelNode, p: AttentionProblem, present: Sequence[str]
) -> dict[str, Any]:
    *batch, rows, _ = shape = node.results[0].shape
    scores = (*batch, rows, p.keys)
    accesses = {
        "query": node.operands["query"].broadcast((*batch, rows, p.depth)),
        "key": node.operands["key"].broadcast((*batch, p.keys, p.depth)),
        "value": node.operands["value"].broadcast((*batch, p.keys, p.width)),
        **{name: node.operands[name].broadcast(scores) for name in present},
    }
    walks = {name: (a.offset, a.strides) for name, a in accesses.items()}
    spread = _spread(node.output, shape)
    assert spread is not None
    walks["out"] = node.output.offset, spread
    sizes, steps = collapse(tuple(batch), *(s[:-2] for _, s in walks.values()))
    if len(sizes) > BATCH_RANK:
        raise Unsupported(f"{len(sizes)} dimensions of matrices; {BATCH_RANK} are supported")
    pad = (0,) * (BATCH_RANK - len(sizes))
    params: dict[str, Any] = {
        "rows": p.rows, "keys": p.keys, "depth": p.depth, "width": p.width, "batches": p.batches,
        "scale": node.arguments["scale"], "batch_sizes": ((1, 1) + sizes)[-2:],
    }
    for (name, (offset, strides)), step in zip(walks.items(), steps, strict=True):
        params |= {f"{name}_base": offset, f"{name}_row": strides[-2], f"{name}_batch": pad + step}
        if name in _OPTIONAL:
            params[f"{name}_column"] = strides[-1]
    if "seen" in present:
        params["unseen"] = node.arguments["unseen"]
    return params

"""Rows, for the families that reduce or scan them (reduce, norm, softmax, scan): which dimensions
make up a row, and how many invocations share one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from math import prod

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..types.access import strides
from ..types.sizes import preferring
from .dispatch import Unsupported, workgroup
from .heuristics import device_class
from .loads import SUBGROUP_SUMS, texel_bytes
from .schedule import Schedule


@dataclass(frozen=True)
class Split:
    """The dimensions of a row-major tensor, with strides in elements: those that are kept number
    the rows, the reduced ones make up a row. Neighbours are merged, which leaves at most four of
    each; fewer are preceded by dimensions of size 1."""

    kept: tuple[int, ...]
    kept_strides: tuple[int, ...]
    reduced: tuple[int, ...]
    reduced_strides: tuple[int, ...]

    @property
    def rows(self) -> int:
        return prod(self.kept)

    @property
    def length(self) -> int:
        return prod(self.reduced)

    @property
    def is_linear(self) -> bool:
        """Whether the elements of a row are one stride apart throughout."""
        return prod(self.reduced[:-1]) == 1

    @property
    def contiguous(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return self.is_linear and self.reduced_strides[-1] == 1

    @property
    def params(self) -> dict[str, tuple[int, ...]]:
        """The parameters of `lib/rows.glsl.j2`."""
        return {
            "kept": self.kept, "kept_stride": self.kept_strides,
            "reduced": self.reduced, "reduced_stride": self.reduced_strides,
        }

    @property
    def constants(self) -> dict[str, int]:
        """The specialisation constant of `lib/rows.glsl.j2`. It is none of the parameters, because
        devices that execute both sides of a branch would pay for the divisions of the general case
        at every element."""
        return {"LINEAR": int(self.is_linear)}


def split(shape: tuple[int, ...], axes: Collection[int]) -> Split:
    """The dimensions of ``shape`` by whether they are in ``axes``."""
    groups: dict[bool, list[tuple[int, int]]] = {False: [], True: []}
    # Dimensions of size 1 do not separate their neighbours.
    dims = [(i in axes, d, s) for i, (d, s) in enumerate(zip(shape, strides(shape), strict=True))
            if d > 1]
    for reduced, run in groupby(dims, lambda item: item[0]):
        sizes, steps = zip(*((d, s) for _, d, s in run), strict=True)
        groups[reduced].append((prod(sizes), steps[-1]))
    filled = {key: [(1, 0)] * (4 - len(value)) + value for key, value in groups.items()}
    return Split(
        tuple(d for d, _ in filled[False]), tuple(s for _, s in filled[False]),
        tuple(d for d, _ in filled[True]), tuple(s for _, s in filled[True]),
    )


_KEPT_BACK = 15_000


# -- loops ----------------------------------------------------------------------------------------
def loop_budget(profile: DeviceProfile) -> int | None:
    """Iterations that a kernel may count on, None: any number. Some are kept back for the loops
    around and for conditions that fail."""
    limit = profile.max_loop_iterations
    return None if limit is None else max(1, limit - _KEPT_BACK)


def check_iterations(count: float, profile: DeviceProfile) -> None:
    """Unsupported where one invocation would go through too many iterations."""
    budget = loop_budget(profile)
    if budget is not None and count > budget:
        raise Unsupported(
            f"an invocation would need {count:.0f} iterations; {profile.driver_name} ends loops at "
            f"{profile.max_loop_iterations}"
        )


# -- schedules ------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Rows:
    """``rows`` rows of ``length`` elements; ``contiguous``: they lie side by side; ``passes``:
    loop iterations per element; ``texels``: whether they can be read as texels."""

    rows: int
    length: int
    contiguous: bool
    passes: int = 1
    texels: bool = False


def schedules(problem: Rows, profile: DeviceProfile, **numbers: int) -> list[Schedule]:
    """Schedules by the invocations that share a row (``lanes``): one, or a workgroup of 32 or more,
    a power of 2 as tree reductions need. ``numbers`` are added to each schedule. Unsupported where
    the rows are too long for any."""
    largest = min(profile.max_workgroup_invocations, profile.max_workgroup_size[0])
    largest = 1 << (largest.bit_length() - 1)
    sizes = [1]
    while (size := max(32, 2 * sizes[-1])) <= largest:
        sizes.append(size)
    budget = loop_budget(profile)
    work = problem.length * problem.passes
    fitting = [n for n in sizes if budget is None or work <= n * budget]
    if not fitting:
        check_iterations(work / sizes[-1], profile)
    texels = problem.texels and 4 * problem.rows * problem.length <= texel_bytes(profile)
    return [
        Schedule("group" if n > 1 else "invocation", (*numbers.items(), ("lanes", n)), load)
        for load in ("storage", *["texel"] * texels)
        for n in fitting
    ]


def combining(problem: Rows, profile: DeviceProfile) -> int:
    """How many invocations share a row of the results of chunks: a workgroup where it has work for
    one. There are few such rows, so this is no choice between schedules."""
    sizes = [schedule["lanes"] for schedule in schedules(problem, profile)]
    with preferring():
        if problem.length < 32:
            return sizes[0]
        most = max(32, min(256, 1 << (problem.length // 4 - 1).bit_length()))
        return max(n for n in sizes if n <= max(most, sizes[0]))


def chunked_schedules(problem: Rows, profile: DeviceProfile) -> list[Schedule]:
    """Schedules of rows that may be cut into ``chunks``: as few as the device's loops allow (whole
    rows if they do), and as many as the device prefers where there are few very long rows."""
    budget = loop_budget(profile)
    rows, length = problem.rows, problem.length
    least = 1 if budget is None or length <= budget // 2 else ceil_divide(2 * length, budget)
    wanted = max(least, device_class(profile).chunks(rows, length))
    return [
        schedule
        for chunks in sorted({least, wanted})
        for schedule in schedules(
            replace(problem, rows=rows * chunks, length=ceil_divide(length, chunks)), profile,
            chunks=chunks,
        )
    ]


# Vectors of a row that an invocation keeps in registers, at most; where subgroups share rows.
_KEPT, _KEPT_BY_SUBGROUPS = 4, 8


@dataclass(frozen=True)
class Vectors:
    """How the elements of a row are loaded: one by one, or four at once, each time that they are
    needed (``read``) or once (``kept``: the number of vectors in registers). ``way`` is the
    templates' option ``vectors``."""

    way: str = ""
    kept: int = 0

    @property
    def width(self) -> int:
        """The vector width of the buffers that hold the rows."""
        return 4 if self.way else 1

    def named(self, schedule: Schedule) -> str:
        """The variant's name in reports."""
        texels = ["texels"] * (schedule.load == "texel")
        return " ".join([schedule.kernel, *texels, *["vectors", self.way] * bool(self.way)])

    @property
    def constants(self) -> dict[str, int]:
        """Specialisation constants that the kernel has beside its others."""
        return {"KEPT": self.kept} if self.way == "kept" else {}


def vectors(problem: Rows, lanes: int, subgroups: bool = False) -> Vectors:
    """How ``lanes`` invocations load each of these rows: by vectors where they begin at multiples
    of 4 elements, which are kept where they are few. ``subgroups``: as in `by_subgroups`."""
    if not problem.contiguous or problem.length % 4:
        return Vectors()
    own = ceil_divide(problem.length // 4, lanes)
    most = _KEPT_BY_SUBGROUPS if subgroups else _KEPT
    return Vectors("kept", own) if lanes > 1 and own <= most else Vectors("read")


def by_subgroups(
    problem: Rows, candidates: Sequence[Schedule], profile: DeviceProfile,
    together: Sequence[int] = (1,),
) -> list[Schedule]:
    """Schedules of rows that a workgroup keeps in registers and that subgroup operations share, in
    workgroups as the ``candidates`` have and of one subgroup, which may take several rows
    ``together``. None for devices on a CPU, whose subgroups share no faster than their workgroups.
    """
    if not profile.features >= SUBGROUP_SUMS or profile.device_type == "cpu":
        return []
    sizes = {candidate["lanes"] for candidate in candidates} | {profile.subgroup_size}
    return [
        Schedule("subgroups", (("lanes", lanes), ("rows", rows)))
        for lanes in sorted(sizes) if vectors(problem, lanes, subgroups=True).kept
        for rows in together if rows == 1 or one_subgroup(lanes, profile)
    ]


def one_subgroup(lanes: int, profile: DeviceProfile) -> bool:
    """Whether a workgroup of this many invocations is certain to be one subgroup."""
    if "subgroup_full" not in profile.features:
        return False
    if "subgroup_size_control" in profile.features:
        return profile.min_subgroup_size <= lanes <= profile.max_subgroup_size
    return lanes == profile.min_subgroup_size == profile.max_subgroup_size


def kept_constants(
    problem: Rows, lanes: int, kept: int, subgroups: bool, profile: DeviceProfile
) -> dict[str, int]:
    """Specialisation constants of kernels whose ``lanes`` invocations keep ``kept`` vectors of a
    row, with or without subgroup operations."""
    return {
        "FULL": int(problem.length == 4 * lanes * kept),
        "SUBGROUP": lanes if subgroups and one_subgroup(lanes, profile) else 0,
    }


def launch(count: int, lanes: int, profile: DeviceProfile) -> tuple[int, int]:
    """Size and number of the workgroups for ``count`` rows: one workgroup per row, or, where
    ``lanes`` is 1, one invocation per row."""
    if lanes > 1:
        return lanes, count
    with preferring():
        size = workgroup(profile, device_class(profile).workgroup(count))
    return size, ceil_divide(count, size)

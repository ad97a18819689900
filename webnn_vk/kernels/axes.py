"""Which invocations share a row: dimensions split into kept and reduced ones, and the choice of
strategy. For the families that reduce (reduce, norm, softmax, scan)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from math import prod

from webnn_vk.codegen.spec import Constant, Param

from ..device_profile import DeviceProfile
from .dispatch import Unsupported, strides

# What `lib/rows.glsl.j2` reads. LINEAR is a specialisation constant: devices that execute both
# sides of a branch would pay for the divisions of the general case at every element.
PARAMS = tuple(
    Param(name, "uint", 4) for name in ("kept", "kept_stride", "reduced", "reduced_stride")
)
CONSTANTS = (Constant("LINEAR"),)


# llvmpipe ends every loop once a shader's loops have made 65535 iterations in all, silently
# (LP_MAX_TGSI_LOOP_ITERATIONS; the test of a condition that fails counts too). Some are kept back.
ITERATIONS = 50000


@dataclass(frozen=True)
class Split:
    """Dimensions and strides (in elements) of a row-major tensor; merged where possible, so that at
    most four of each remain, filled up with 1s from the left."""

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
        """Whether one stride leads through a row."""
        return prod(self.reduced[:-1]) == 1

    @property
    def contiguous(self) -> bool:
        """Whether the elements of a row lie side by side."""
        return self.is_linear and self.reduced_strides[-1] == 1

    @property
    def params(self) -> dict[str, tuple[int, ...]]:
        """Values of `PARAMS`."""
        return {
            "kept": self.kept, "kept_stride": self.kept_strides,
            "reduced": self.reduced, "reduced_stride": self.reduced_strides,
        }

    @property
    def constants(self) -> dict[str, int]:
        """Values of `CONSTANTS`."""
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
    padded = {key: [(1, 0)] * (4 - len(value)) + value for key, value in groups.items()}
    return Split(
        tuple(d for d, _ in padded[False]), tuple(s for _, s in padded[False]),
        tuple(d for d, _ in padded[True]), tuple(s for _, s in padded[True]),
    )


def check_iterations(count: float, profile: DeviceProfile) -> None:
    """Unsupported where one invocation would go through too many iterations."""
    if profile.is_software and count > ITERATIONS:
        raise Unsupported(
            f"an invocation would need {count:.0f} iterations; llvmpipe ends loops at 65535"
        )


def lanes(
    rows: int, length: int, contiguous: bool, profile: DeviceProfile, passes: int = 1
) -> int:
    """Invocations that share a row: 1, or a power of two (the size of a workgroup).

    ``passes``: iterations that a row's element costs. Unsupported for rows that are too long.
    """
    largest = min(profile.max_workgroup_invocations, profile.max_workgroup_size[0])
    largest = 1 << (largest.bit_length() - 1)
    if profile.is_software:
        # A workgroup is a task of one core with 8-wide SIMD: only few long rows need sharing.
        count = 32 if rows < 64 and length >= 256 else 1
        while length * passes > count * ITERATIONS and count < largest:
            count = max(32, 2 * count)
        check_iterations(length * passes / count, profile)
        return count
    many = rows >= 8192
    if length < 32 or (many and not contiguous) or (many and length < 64):
        return 1
    wanted = 1 << max(5, (length // 4 - 1).bit_length())
    return min(256, wanted, largest)


def workgroup(count: int, profile: DeviceProfile) -> int:
    """Invocations per workgroup where ``count`` of them work each for itself."""
    # On a CPU a workgroup is a task: few invocations still have to reach all the cores.
    wanted = 16 if profile.is_software and count < 512 else 64
    return min(wanted, profile.max_workgroup_invocations, profile.max_workgroup_size[0])


def launch(count: int, lanes: int, profile: DeviceProfile) -> tuple[int, int]:
    """Size and number of the workgroups for ``count`` rows that `lanes` share, or, where that is
    one, for as many invocations."""
    if lanes > 1:
        return lanes, count
    size = workgroup(count, profile)
    return size, -(-count // size)


def chunks(rows: int, length: int, profile: DeviceProfile) -> int:
    """Into how many pieces few and very long rows are cut, so that they fill the device."""
    if profile.is_software:
        fill = min(256 // rows, length // 4096)
        return max(1, fill, -(-2 * length // ITERATIONS) if length > ITERATIONS // 2 else 1)
    return max(1, min(512 // rows, length // 16384))

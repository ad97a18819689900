"""Which invocations share a row: dimensions split into kept and reduced ones, and the choice of
strategy. For the families that reduce (reduce, norm, softmax, scan)."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from itertools import groupby
from math import prod

from ..profile import DeviceProfile
from .dispatch import strides


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

    def params(self) -> dict[str, object]:
        """Values of the parameters that `row_start` and `position` of the templates read."""
        return {
            "kept": self.kept, "kept_stride": self.kept_strides,
            "reduced": self.reduced, "reduced_stride": self.reduced_strides,
            "linear": int(self.is_linear),
        }


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


def lanes(rows: int, length: int, contiguous: bool, profile: DeviceProfile) -> int:
    """Invocations that share a row: 1, or a power of two (the size of a workgroup)."""
    largest = min(profile.max_workgroup_invocations, profile.max_workgroup_size[0])
    if profile.is_software:
        # A workgroup is a task of one core with 8-wide SIMD: only few long rows need sharing.
        return 32 if rows < 64 and length >= 256 else 1
    many = rows >= 8192
    if length < 32 or (many and not contiguous) or (many and length < 64):
        return 1
    wanted = 1 << max(5, (length // 4 - 1).bit_length())
    return min(256, wanted, 1 << (largest.bit_length() - 1))


def workgroup(profile: DeviceProfile) -> int:
    """Invocations per workgroup where each works on its own row."""
    return min(64, profile.max_workgroup_invocations, profile.max_workgroup_size[0])


def chunks(rows: int, length: int, profile: DeviceProfile) -> int:
    """Into how many pieces few and very long rows are cut, so that they fill the device."""
    wanted, least = (16, 8192) if profile.is_software else (512, 16384)
    return max(1, min(wanted // rows, length // least))

"""How a problem is computed: the kernel and its tile sizes, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.integers import ceil_divide

from ..types.sizes import sizes_in, symbolic

#: The name of the number of parts.
SPLIT = "SPLIT"
#: Products whose lanes lie below each other (``product_dispatch.row_schedules``).
BY_ROWS = "matmul_rows"


@dataclass(frozen=True)
class Schedule:
    """A way to compute a problem: ``kernel`` names the template or variant, ``numbers`` are its
    tile sizes and the like. It is plain data, so that a table of tuned schedules can hold it.

    load: how operands are read, "storage" (storage buffers, in vectors where they are aligned) or
    "texel" (uniform texel buffers).
    """

    kernel: str
    numbers: tuple[tuple[str, int], ...] = ()
    load: str = "storage"

    def __getitem__(self, name: str) -> int:
        for key, value in self.numbers:
            if key == name:
                return value
        raise KeyError(f"schedule {self} has no {name}")

    @property
    def parts(self) -> int:
        """Into how many parts a product's inner dimension is cut (``split_k``); 1: it isn't."""
        return dict(self.numbers).get(SPLIT, 1)

    @property
    def by_matrices(self) -> bool:
        """Whether cooperative matrices of subgroups multiply (``coopmat``)."""
        return any(name == "FM" for name, _ in self.numbers)

    @property
    def of_part(self) -> Schedule:
        """The schedule of one of the parts."""
        return replace(self, numbers=tuple(n for n in self.numbers if n[0] != SPLIT))

    @property
    def tile(self) -> tuple[int, int]:
        """Rows and columns of a product, or of an image, that a workgroup computes."""
        numbers = dict(self.numbers)
        if "BM" in numbers:
            return numbers["BM"], numbers["BN"]
        if "TH" in numbers:
            return numbers["TH"], numbers["TW"]
        if self.kernel == BY_ROWS:
            return numbers["LX"] * numbers["TM"], numbers["TN"]
        return numbers["LY"] * numbers["TM"], numbers["LX"] * numbers["TN"]

    def tiles(self, rows: int, columns: int) -> int:
        """The tiles that cover a product of this size."""
        high, wide = self.tile
        return ceil_divide(rows, high) * ceil_divide(columns, wide)

    def constants(self, *names: str) -> dict[str, int]:
        """The numbers of these names, as specialisation constants."""
        return {name: self[name] for name in names}

    def __str__(self) -> str:
        numbers = (f"{key}={value}" for key, value in self.numbers)
        return " ".join([self.kernel, *numbers, *[f"by {self.load}"] * (self.load != "storage")])


#: Schedules that measurements chose for one device: (family, problem class) → schedule.
Tuned = Mapping[tuple[str, str], Schedule]
NOTHING_TUNED: Tuned = MappingProxyType({})


def problem_class(problem: Any) -> str:
    """The text under which a tuned schedule is kept: problems of one class behave alike. Sizes that
    are known at dispatch count as their examples."""
    if any(sizes_in(dict(vars(problem)))):
        problem = replace(problem, **symbolic(dict(vars(problem)), lambda size: size.value))
    return repr(problem)

"""Python's operators on operands of a graph being built: sugar beyond the specification."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np


def _operator(method: str, *, swapped: bool = False, numbers: bool = True) -> Callable[..., Any]:
    """Both operands to a method of the builder; a number becomes a constant of the other's type."""

    def apply(self: Any, other: Any) -> Any:
        if numbers and isinstance(other, (int, float, np.integer, np.floating)):
            if isinstance(other, bool):
                return NotImplemented
            other = self._builder._constant_number(self.data_type, other)
        elif not isinstance(other, Arithmetic):
            return NotImplemented
        a, b = (other, self) if swapped else (self, other)
        return getattr(self._builder, method)(a, b)

    return apply


class Arithmetic:
    """``+ - * / ** @``, unary minus and ``< <= > >=`` are the builder's ``add``, ``sub``, ``mul``,
    ``div``, ``pow``, ``matmul``, ``neg``, ``lesser`` … ``greater_or_equal`` (extension). A number
    on either side becomes a constant of the operand's data type, cast as ``constant`` does it.
    ``==`` and ``!=`` compare identity: ``builder.equal`` compares elements."""

    __slots__ = ()
    #: NumPy's numbers and arrays leave the operation to the operand.
    __array_ufunc__ = None

    __add__, __radd__ = _operator("add"), _operator("add", swapped=True)
    __sub__, __rsub__ = _operator("sub"), _operator("sub", swapped=True)
    __mul__, __rmul__ = _operator("mul"), _operator("mul", swapped=True)
    __truediv__, __rtruediv__ = _operator("div"), _operator("div", swapped=True)
    __pow__, __rpow__ = _operator("pow"), _operator("pow", swapped=True)
    __matmul__ = _operator("matmul", numbers=False)
    __lt__, __le__ = _operator("lesser"), _operator("lesser_or_equal")
    __gt__, __ge__ = _operator("greater"), _operator("greater_or_equal")

    def __neg__(self: Any) -> Any:
        return self._builder.neg(self)

    def __bool__(self) -> bool:
        raise TypeError(
            f"{self!r} has no truth value before the graph runs: builder.where chooses by "
            "elements, `is None` asks for presence"
        )

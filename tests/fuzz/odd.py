"""Values that no argument expects: numbers at and beyond every limit, endless sequences, released
buffers, and objects that report false properties or raise when they are used."""

from __future__ import annotations

import array
import ctypes
import decimal
import fractions
import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np


class Custom(Exception):
    """An exception from a caller's object."""


class Unprintable(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


_ERRORS: tuple[Callable[[], Exception], ...] = (
    lambda: ValueError("odd"), lambda: KeyError("odd"), lambda: OverflowError("odd"),
    lambda: RecursionError("odd"), lambda: AttributeError("odd"), lambda: OSError("odd"),
    lambda: ZeroDivisionError("odd"), lambda: TypeError("odd"), lambda: Custom("odd"),
    lambda: Custom("\ud800\n"), Unprintable, lambda: StopIteration("odd"),
    lambda: RuntimeError("odd"), lambda: IndexError("odd"),
)


class Raises:
    """Raises on any access."""

    def __init__(self, error: Exception) -> None:
        object.__setattr__(self, "error", error)

    def _raise(self, *_: Any, **__: Any) -> Any:
        raise object.__getattribute__(self, "error")

    __len__ = __iter__ = __getitem__ = __index__ = __int__ = __float__ = __bool__ = _raise
    __array__ = __repr__ = __str__ = __eq__ = __contains__ = __dlpack__ = __next__ = _raise
    __call__ = __add__ = __radd__ = __mul__ = __rmul__ = __lt__ = __format__ = _raise
    __dlpack_device__ = keys = values = items = _raise
    __hash__ = object.__hash__


class RaisingSequence(Raises, Sequence):
    __hash__ = object.__hash__


class RaisingMapping(Raises, Mapping):
    __hash__ = object.__hash__


class Endless(Sequence):
    """Reports two items, and is endless."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: Any) -> int:
        return 1


class Lying(Sequence):
    """A length that differs from the number of items."""

    def __init__(self, length: Any, items: Sequence[Any]) -> None:
        self.length, self.given = length, items

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: Any) -> Any:
        return self.given[index]


class LyingMapping(Mapping):
    """Lists keys that it doesn't have, and has keys that it doesn't list."""

    def __init__(self, named: Sequence[Any], had: Mapping[Any, Any]) -> None:
        self.named, self.had = named, had

    def __len__(self) -> int:
        return len(self.named)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.named)

    def __getitem__(self, key: Any) -> Any:
        return self.had[key]


class Index:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __index__(self) -> Any:
        return self.value


class Array:
    """The caller chooses the result of ``__array__``."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, *_: Any, **__: Any) -> Any:
        return self.value


class Text(str):
    def __hash__(self) -> int:
        return 1

    def __eq__(self, other: Any) -> bool:
        raise ValueError("odd")


class Number(int):
    def __index__(self) -> int:
        raise ValueError("odd")

    def __repr__(self) -> str:
        raise ValueError("odd")


class Numbers(list):
    def __iter__(self) -> Any:
        raise ValueError("odd")

    def __len__(self) -> int:
        return -1


class Strange(np.ndarray):
    def __array_finalize__(self, other: Any) -> None:
        pass

    def reshape(self, *_: Any, **__: Any) -> Any:
        raise ValueError("odd")

    def view(self, *_: Any, **__: Any) -> Any:
        raise ValueError("odd")


def _released() -> memoryview:
    view = memoryview(bytearray(16))
    view.release()
    return view


def _recursive() -> list[Any]:
    inside: list[Any] = [1]
    inside.append(inside)
    return inside


def _deep() -> list[Any]:
    inside: list[Any] = []
    for _ in range(20_000):
        inside = [inside]
    return inside


def _generator() -> Iterator[int]:
    yield 1
    yield 2


_INTEGERS = (
    0, 1, 2, 3, 4, 7, 8, 9, 255, 2**16, 2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**63, 2**64, 10**5000,
    -1, -2, -(2**31), -(2**31) - 1, -(10**5000),
)
_FLOATS = (0.0, -0.0, 0.5, 1.0, 2.0, -1.0, 1e-45, 1e30, 1e39, 1e308, math.nan, math.inf, -math.inf)
_TEXTS = (
    "", "a", "float32", "int8", "float64", ">f4", "\ud800", "a\0b", "\u202eevil", "x" * 5000,
    "nchw", "linear", "\n\x1b[2J", "\N{PILE OF POO}", "1",
)
_TYPES = ("f4", "f2", "i4", "u4", "i8", "u8", "i1", "u1", ">f4", ">i4", ">u8", ">i2", "f8", "c8",
          "?", "M8[s]", "m8[s]", "S4", "U2", "O", "V4", "i4,f4", ">f2")
_SHAPES = ((), (0,), (1,), (4,), (2, 2), (1, 1, 1), (2, 0), (1,) * 9, (1,) * 32)

#: Makers of odd values, one each: a value is used once, as some change when they are used.
_MAKERS: tuple[Callable[[random.Random], Any], ...] = (
    lambda r: None, lambda r: True, lambda r: False, lambda r: np.bool_(True),
    lambda r: Ellipsis, lambda r: NotImplemented, lambda r: int, lambda r: np.float32,
    lambda r: np.generic, lambda r: np.dtype(r.choice(_TYPES)), lambda r: len, lambda r: object(),
    lambda r: b"", lambda r: b"abcdabcdabcdabcd", lambda r: bytearray(16), lambda r: 1j,
    lambda r: fractions.Fraction(1, 3), lambda r: decimal.Decimal("1.5"), lambda r: slice(1, 2),
    lambda r: range(r.choice((0, 2, 4, 10**6, 2**40))), lambda r: _generator(), lambda r: {1, 2},
    lambda r: {}, lambda r: {"data_type": "float32", "shape": [2]}, lambda r: {1: 2},
    lambda r: [], lambda r: (), lambda r: [[1, 2], [3]], lambda r: _recursive(), lambda r: _deep(),
    lambda r: [None], lambda r: ["a"], lambda r: [1.0, 2.0], lambda r: [True], lambda r: [10**5000],
    lambda r: [_released()], lambda r: [Raises(r.choice(_ERRORS)())],
    lambda r: [[np.zeros(2), 1], 3],
    lambda r: _released(), lambda r: memoryview(b"abcd"), lambda r: memoryview(b"abcdabcd")[::2],
    lambda r: array.array("d", [1, 2]), lambda r: array.array("i", [1, 2, 3, 4]),
    lambda r: (ctypes.c_int32.__ctype_be__ * 4)(1, 2, 3, 4), lambda r: (ctypes.c_float * 4)(),
    lambda r: ctypes.c_void_p(0), lambda r: (ctypes.c_char_p * 2)(),
    lambda r: Raises(r.choice(_ERRORS)()), lambda r: Raises(r.choice(_ERRORS)()),
    lambda r: RaisingSequence(r.choice(_ERRORS)()), lambda r: RaisingMapping(r.choice(_ERRORS)()),
    lambda r: Endless(), lambda r: Lying(r.choice((-1, 0, 3, 2**62, 2**70, "a", None)), [1, 2]),
    lambda r: LyingMapping(["data_type", "shape"], {}), lambda r: LyingMapping([1, "x"], {"x": 1}),
    lambda r: LyingMapping([], {"data_type": "int8", "shape": [1]}),
    lambda r: Index(r.choice((1, -1, 2**40, "a", None, 1.0, 10**5000))),
    lambda r: Array(r.choice((None, 3, [1], np.zeros(4, np.float32), "a"))),
    lambda r: Text("float32"), lambda r: Number(2), lambda r: Numbers([1, 2]),
    lambda r: np.zeros(4, np.float32).view(Strange), lambda r: np.ma.masked_array([1, 2], [0, 1]),
    lambda r: np.float32(1.5), lambda r: np.int64(-1), lambda r: np.uint8(3),
    lambda r: np.longdouble(1), lambda r: np.float16("inf"), lambda r: np.datetime64("nat"),
    lambda r: np.zeros((), np.int32), lambda r: np.array([True, False]), lambda r: np.str_("add"),
    lambda r: np.broadcast_to(np.float32(1), (2, 2)), lambda r: np.arange(8)[::-2],
    lambda r: np.zeros(r.choice(_SHAPES), r.choice(_TYPES)),
    lambda r: np.zeros(r.choice(_SHAPES), r.choice(_TYPES)),
    lambda r: np.zeros(r.choice(_SHAPES), r.choice(_TYPES)),
    lambda r: r.choice(_INTEGERS), lambda r: r.choice(_INTEGERS), lambda r: r.choice(_INTEGERS),
    lambda r: [r.choice(_INTEGERS) for _ in range(r.choice((1, 2, 4, 9)))],
    lambda r: [r.choice(_INTEGERS) for _ in range(r.choice((1, 2, 4, 9)))],
    lambda r: tuple(np.int64(n) for n in (1, 2)), lambda r: [r.choice(_INTEGERS)] * 20_000,
    lambda r: r.choice(_FLOATS), lambda r: r.choice(_FLOATS),
    lambda r: r.choice(_TEXTS), lambda r: r.choice(_TEXTS), lambda r: [r.choice(_TEXTS)],
)


def odd(chance: random.Random) -> Any:
    """An odd value, a new one each time."""
    return chance.choice(_MAKERS)(chance)


def label(chance: random.Random) -> Any:
    """A label: mostly a strange text, otherwise anything."""
    return chance.choice(_TEXTS) if chance.random() < 0.8 else odd(chance)


def shown(value: Any) -> str:
    """A value in a form with which it can be made again."""
    try:
        text = repr(value)
    except Exception:
        text = object.__repr__(value)
    return text.encode("ascii", "backslashreplace").decode()[:160]

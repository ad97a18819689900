"""What sizes that are known at dispatch become in a program."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.support.dataclass import dataclass

from ..types.sizes import Size, symbolic

_LETTERS = {"uint": "I", "int": "i", "float": "f"}


@dataclass(frozen=True)
class SizedParams:
    """Parameters some of which are sizes: ``values`` for ``struct.pack``."""

    format: str
    values: tuple[Any, ...]

    def __len__(self) -> int:
        return struct.calcsize(self.format)


def packed_params(spec: KernelSpec, params: Mapping[str, Any]) -> bytes | SizedParams:
    """The parameter block of a kernel."""
    if not spec.params:
        return b""
    flat: list[Any] = []
    letters = "<"
    for param in spec.params:
        value = params[param.name]
        items = value if isinstance(value, Sequence) else [value]
        flat += items
        letters += _LETTERS[param.type] * len(items)
    if not any(isinstance(item, Size) for item in flat):
        return spec.pack_params(params)
    # Checks names, counts and ranges, with the example's numbers.
    spec.pack_params(symbolic(dict(params), lambda size: size.value))
    return SizedParams(letters, tuple(flat))


def joined(blocks: Iterable[bytes | SizedParams]) -> bytes | SizedParams:
    """Parameter blocks behind each other."""
    formats, values = [], []
    for block in blocks:
        sized = isinstance(block, SizedParams)
        formats.append(block.format.lstrip("<") if sized else f"{len(block)}s")
        values += block.values if sized else [block]
    if all(isinstance(value, bytes) for value in values):
        return b"".join(values)
    return SizedParams("<" + "".join(formats), tuple(values))


def upper_bound(size: Any) -> int:
    """The most that a size of a trace can be; a size without a bound is fixed to its example."""
    if not isinstance(size, Size):
        return size
    high = size.trace.interval(size.terms)[1]
    return int(size) if high == float("inf") else int(high)


def lower_bound(size: Any) -> int:
    """The least that a size of a trace can be."""
    if not isinstance(size, Size):
        return size
    low = size.trace.interval(size.terms)[0]
    return int(size) if low == float("-inf") else int(low)

"""Whole numbers: division that rounds up, and sizes in bytes that memory is handed out in."""

from __future__ import annotations

#: Kernels may read and write whole vectors of this many bytes, even at the end of a tensor.
VECTOR_BYTES = 16


def ceil_divide(number: int, divisor: int) -> int:
    """``number / divisor`` rounded up, for a positive divisor."""
    return -(-number // divisor)


def round_up(number: int, multiple: int) -> int:
    """The smallest multiple of ``multiple`` that is not below ``number``."""
    return ceil_divide(number, multiple) * multiple


def padded(byte_length: int) -> int:
    """Bytes that a value occupies: whole vectors, at least one."""
    size = round_up(byte_length, VECTOR_BYTES)
    return size if size >= VECTOR_BYTES else VECTOR_BYTES

"""Strides of broadcast tensors."""

from __future__ import annotations

from collections.abc import Sequence

from webnn_vk.compiler.types.access import strides


def broadcast_strides(shape: Sequence[int], target: Sequence[int]) -> tuple[int, ...]:
    """Strides that read ``shape`` as if broadcast to ``target`` (0 where repeated)."""
    missing = len(target) - len(shape)
    steps = (0,) * missing + strides(shape)
    dims = (1,) * missing + tuple(shape)
    return tuple(s if d != 1 else 0 for s, d in zip(steps, dims, strict=True))

"""``op_support_limits()``: derived from the operator records and the device (§8.3.7)."""

from __future__ import annotations

from typing import Any

from webnn_vk.compiler.types.data_types import ALL_TYPES, MAX_RANK, low_precision_types
from webnn_vk.runtime.device import Device


def op_support_limits(device: Device, low_precision: bool = False) -> dict[str, Any]:
    """Nested dictionaries with snake_case keys: per operator and operand ``data_types`` and
    ``rank_range``, with ``max_tensor_byte_length`` (bytes) and ``preferred_input_layout``.
    ``low_precision``: whether the context has these types."""

    from webnn_vk.compiler.ops import OPERATORS

    def row(types: tuple[str, ...], low: int, high: int) -> dict[str, Any]:
        more = low_precision_types(types) if low_precision else ()
        return {"data_types": [*types, *more], "rank_range": {"min": low, "max": high}}

    limits: dict[str, Any] = {
        # Our convolution reads four channels at once where they lie side by side (1×1: 18 against
        # 11 GFLOP/s on lavapipe); the CPU device's gathers rows of an image (slightly faster).
        "preferred_input_layout": "nchw" if device.profile is None else "nhwc",
        "max_tensor_byte_length": device.max_tensor_byte_length,
        **{name: row(ALL_TYPES, 0, MAX_RANK) for name in ("input", "constant", "output")},
    }
    for name, record in OPERATORS.items():
        rows = ((operand, record.limit(operand)) for operand in record.limits)
        limits[name] = {operand: row(limit.types, *limit.rank) for operand, limit in rows}
    return limits

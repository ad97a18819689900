"""Tensors that a GPUDevice can take over, and their contents."""

from __future__ import annotations

from typing import Any

import numpy as np


def exportable(pair: Any, data_type: str, shape: tuple[int, ...] = (2, 4), **flags: bool) -> Any:
    context, device = pair
    descriptor = {
        "data_type": data_type, "shape": shape, "readable": True, "writable": True, **flags,
    }
    return context.create_exportable_tensor(descriptor, device).result(60)


def numbers(data_type: str, shape: tuple[int, ...] = (2, 4), start: int = 1) -> np.ndarray:
    count = int(np.prod(shape))
    return (np.arange(start, start + count) % 509).reshape(shape).astype(data_type)

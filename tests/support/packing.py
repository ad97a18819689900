"""A packing for tests, and graphs whose kernels read packed constants."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from webnn_vk.compiler.ir import Value
from webnn_vk.compiler.kernels import Dispatch, Scratch
from webnn_vk.compiler.kernels.dispatch import Packed
from webnn_vk.compiler.kernels.lowered_graph import DeviceWork, LoweredGraph
from webnn_vk.compiler.kernels.raw_copy import Box, move
from webnn_vk.compiler.types.access import strides
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile


@dataclass(frozen=True)
class Transposed:
    """A matrix stored by columns, ``repeat`` times in a row. ``through_scratch`` adds one more
    copy."""

    repeat: int = 1
    through_scratch: bool = False

    def byte_length(self, descriptor: MLOperandDescriptor) -> int:
        return self.repeat * descriptor.byte_length

    def pack(self, packed: Packed, profile: DeviceProfile) -> Sequence[Dispatch]:
        value = packed.value
        source: Value | Scratch = value
        dispatches: list[Dispatch] = []
        if self.through_scratch:
            source = Scratch(value.descriptor.byte_length)
            dispatches += moved(value, value, source, value, _dense(value.shape), profile)
        rows, columns = value.shape
        target = Value(MLOperandDescriptor(value.data_type, (self.repeat, columns, rows)))
        for i in range(self.repeat):
            box = Box((columns, rows), (1, columns), (rows, 1), dst_offset=i * rows * columns)
            dispatches += moved(source, value, packed, target, box, profile)
        return dispatches

    def unpack(self, data: np.ndarray, descriptor: MLOperandDescriptor) -> np.ndarray:
        rows, columns = descriptor.shape
        first = data[: descriptor.byte_length].view(descriptor.numpy_dtype)
        return np.ascontiguousarray(first.reshape(columns, rows).T)


def _dense(shape: tuple[int, ...]) -> Box:
    return Box(shape, strides(shape), strides(shape))


def moved(
    source: Any, like_source: Value, target: Any, like_target: Value, box: Box,
    profile: DeviceProfile,
) -> list[Dispatch]:
    """A copy between any two binding targets, each in the form of a value."""
    reading, writing = Value(like_source.descriptor), Value(like_target.descriptor)
    real = {reading: source, writing: target}
    return [
        replace(d, bindings=tuple(replace(b, value=real[b.value]) for b in d.bindings))
        for d in move(reading, writing, box, profile)
    ]


def show(
    profile: DeviceProfile, packed: Sequence[Packed], plain: Sequence[Value] = ()
) -> LoweredGraph:
    """Has no used inputs (one is unused). Outputs ``packed0`` … are the packed forms as they lie in
    memory, ``plain0`` … the constants themselves."""
    works: list[DeviceWork] = []
    outputs: dict[str, Value] = {}

    def copy(name: str, source: Any, like: Value) -> None:
        outputs[name] = Value(like.descriptor)
        copies = moved(source, like, outputs[name], like, _dense(like.shape), profile)
        works.append(DeviceWork((name,), tuple(copies)))

    for i, each in enumerate(packed):
        described = each.value.descriptor
        size = each.size // described.numpy_dtype.itemsize
        copy(f"packed{i}", each, Value(MLOperandDescriptor(described.data_type, (size,))))
    for i, value in enumerate(plain):
        copy(f"plain{i}", value, value)
    x = Value(MLOperandDescriptor("float32", (1,)), name="x")
    return LoweredGraph({"x": x}, outputs, tuple(works))

"""The weights of a decoder on its device: constant tensors, which all graphs share."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import field

import numpy as np

from webnn_vk.api.context import MLContext
from webnn_vk.api.tensor import MLTensor
from webnn_vk.compiler.kernels.matmul import PANEL_COLUMNS
from webnn_vk.support.dataclass import dataclass

from .blocks import Blocks, joined, rounded
from .source import WeightSource

#: What matrices are rounded to: data type → bits.
ROUNDED = {"int4": 4, "int8": 8}
#: What weights may be stored as.
DATA_TYPES = ("float32", "float16", *ROUNDED)


@dataclass(frozen=True)
class Packed:
    """Operands and arguments of `block_matmul`."""

    words: MLTensor
    scale: MLTensor
    offset: MLTensor | None
    bits: int
    zero_point: int

    def tensors(self) -> tuple[MLTensor, ...]:
        return self.words, self.scale, *(() if self.offset is None else (self.offset,))


@dataclass(frozen=True)
class Stack:
    """Matrices one below the other, in one of three forms. ``packed``: integers. ``panels``:
    floats, [outputs / columns, inputs, columns], where the device reads such a matrix faster.
    Otherwise their floats are ``DeviceWeights.weight``."""

    names: tuple[str, ...]
    shapes: tuple[tuple[int, int], ...]
    packed: Packed | None = None
    panels: MLTensor | None = None

    @property
    def is_plain(self) -> bool:
        """Whether the matrices are floats as the files have them."""
        return self.packed is None and self.panels is None


@dataclass
class DeviceWeights:
    """Reads weights from a model's files and uploads each once."""

    context: MLContext
    source: WeightSource
    data_type: str
    #: Added to what the files say of a norm's weights.
    norm_offset: float = 0.0
    #: Matrices that the files quantise stay so, unless they have more than ``bits``.
    keeps: bool = False
    #: Other matrices are rounded to this many bits, with a scale for each block.
    bits: int | None = None
    #: Called after each tensor that was uploaded.
    at_upload: Callable[[], None] = lambda: None
    _tensors: dict[tuple[str, ...], MLTensor] = field(default_factory=dict)
    _stacks: dict[tuple[str, ...], tuple[Stack, ...]] = field(default_factory=dict)

    def weight(
        self, names: tuple[str, ...], shapes: tuple[tuple[int, ...], ...]
    ) -> MLTensor:
        """Tensors of the files, one below the other, in the model's data type."""
        if names not in self._tensors:
            arrays = [self.array(*n) for n in zip(names, shapes, strict=True)]
            array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
            self._tensors[names] = self._on_device(array)
        return self._tensors[names]

    def array(self, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """A tensor of the files in the model's data type; of a norm, what rows are multiplied by.
        """
        array = self.source.array(name, shape)
        if self.norm_offset and name.endswith("norm.weight"):
            array = array.astype(np.float32) + np.float32(self.norm_offset)
        return self.typed(array)

    def stacks(
        self, names: tuple[str, ...], shapes: tuple[tuple[int, int], ...], inner: int = 1,
        multiplied: bool = True,
    ) -> tuple[Stack, ...]:
        """Matrices of the files, one below the other, as stacks that are stored alike. ``inner``:
        the dimension that products sum over; 0 for one matrix at most. Not ``multiplied``: only
        rows are gathered."""
        if names not in self._stacks:
            given = ((n, s, self._blocks(n, s, inner)) for n, s in zip(names, shapes, strict=True))
            made = []
            for _, group in itertools.groupby(given, lambda g: g[2] and g[2].form):
                own, sizes, found = zip(*group, strict=True)
                if found[0] is None:
                    panels = self._panels(own, sizes, inner) if multiplied else None
                    made.append(Stack(own, sizes, panels=panels))
                elif self._computes_packed():
                    made.append(Stack(own, sizes, self._packed(joined(found))))
                else:
                    floats = np.concatenate([blocks.floats() for blocks in found])
                    self._tensors[own] = self._on_device(floats if inner else floats.T)
                    made.append(Stack(own, sizes))
            self._stacks[names] = tuple(made)
        return self._stacks[names]

    def _blocks(self, name: str, shape: tuple[int, int], inner: int) -> Blocks | None:
        """A matrix that is or becomes quantised; None for one of floats."""
        if self.keeps:
            found = self.source.blocks(name, shape)
            if found is not None and (self.bits is None or found.bits <= self.bits):
                return found
        if self.bits is None:
            return None
        array = self.source.array(name, shape)
        return rounded(array if inner else array.T, self.bits)

    def _computes_packed(self) -> bool:
        """Whether products read packed weights; the CPU device has kernels for floats only."""
        return self.context.device_info.is_vulkan

    def _packed(self, blocks: Blocks) -> Packed:
        offset = None if blocks.offset is None else self._on_device(blocks.offset)
        words, scale = map(self._on_device, (blocks.words, blocks.scale))
        return Packed(words, scale, offset, blocks.bits, blocks.zero_point)

    def _panels(
        self, names: tuple[str, ...], shapes: tuple[tuple[int, int], ...], inner: int
    ) -> MLTensor | None:
        """Matrices as panels, which a processor's core reads from end to end for one token: it
        reads rows that lie apart half as fast. None where products read rows."""
        info, outputs = self.context.device_info, [shape[1 - inner] for shape in shapes]
        if (
            not (info.is_vulkan and info.type == "cpu")
            or self.data_type != "float32"
            or any(count % PANEL_COLUMNS for count in outputs)
        ):
            return None
        panels = np.empty(
            (sum(outputs) // PANEL_COLUMNS, shapes[0][inner], PANEL_COLUMNS), np.float32
        )
        at = 0
        for name, shape, count in zip(names, shapes, outputs, strict=True):
            array = self.array(name, shape)
            rows = array if inner else array.T
            end = at + count // PANEL_COLUMNS
            panels[at:end] = rows.reshape(end - at, PANEL_COLUMNS, -1).transpose(0, 2, 1)
            at = end
        return self._on_device(panels)

    def _on_device(self, array: np.ndarray) -> MLTensor:
        descriptor = {"data_type": array.dtype.name, "shape": array.shape}
        made = self.context.create_constant_tensor(
            descriptor, np.ascontiguousarray(array)
        ).result()
        self.source.release()
        self.at_upload()
        return made

    def typed(self, array: np.ndarray) -> np.ndarray:
        """Numbers in the model's data type."""
        return array.astype(self.data_type, copy=False)

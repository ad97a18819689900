"""Sequences and optionals whose length is known at import."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..context import NodeContext
from ..errors import refuse_if
from ..records import onnx_operator
from ..values import Tensor, TensorList
from .control import stack
from .movement import split_by

#: The most items of a sequence that a tensor is split into.
MAX_PARTS = 10_000


@onnx_operator("SequenceEmpty", raw=True)
def sequence_empty(c: NodeContext, *, dtype: int = 1) -> TensorList:
    return TensorList(())


@onnx_operator("SequenceConstruct", raw=True)
def sequence_construct(c: NodeContext, *inputs: Tensor) -> TensorList:
    return TensorList(inputs)


@onnx_operator("SequenceLength", raw=True)
def sequence_length(c: NodeContext, sequence: TensorList) -> np.ndarray:
    return np.array(len(sequence.items), np.int64)


def _place(c: NodeContext, sequence: TensorList, position: Tensor, more: int = 0) -> int:
    at, count = c.int(position, "the position"), len(sequence.items)
    refuse_if(not -count <= at < count + more, f"position {at} in a sequence of {count}")
    return at


@onnx_operator("SequenceAt", raw=True)
def sequence_at(c: NodeContext, sequence: TensorList, position: Tensor) -> Tensor:
    return sequence.items[_place(c, sequence, position)]


@onnx_operator("SequenceInsert", raw=True)
def sequence_insert(
    c: NodeContext, sequence: TensorList, tensor: Tensor, position: Tensor | None = None
) -> TensorList:
    items = list(sequence.items)
    at = len(items) if position is None else _place(c, sequence, position, 1)
    items.insert(at, tensor)
    return TensorList(tuple(items))


@onnx_operator("SequenceErase", raw=True)
def sequence_erase(
    c: NodeContext, sequence: TensorList, position: Tensor | None = None
) -> TensorList:
    items = list(sequence.items)
    refuse_if(not items, "the sequence is empty")
    items.pop(-1 if position is None else _place(c, sequence, position))
    return TensorList(tuple(items))


@onnx_operator("ConcatFromSequence", raw=True)
def concat_from_sequence(
    c: NodeContext, sequence: TensorList, *, axis: int, new_axis: int = 0
) -> Any:
    refuse_if(not sequence.items, "the sequence is empty")
    if new_axis:
        return stack(c, sequence.items, axis)
    first = sequence.items[0]
    if len(sequence.items) == 1:
        return first
    whole = c.b.concat(list(sequence.items), c.axis(axis, first.rank))
    return c.typed(whole, first.type)


@onnx_operator("SplitToSequence", raw=True)
def split_to_sequence(
    c: NodeContext, x: Tensor, split: Tensor | None = None, *, axis: int = 0, keepdims: int = 1
) -> TensorList:
    axis = c.axis(axis, x.rank)
    length = x.shape[axis]
    each = 1 if split is None else 0
    if split is not None and split.rank == 0:
        each = c.int(split, "the parts' length")
        refuse_if(each < 1, f"parts of {each} elements")
    refuse_if(each and length > each * MAX_PARTS, f"more than {MAX_PARTS} parts")
    if each:
        lengths = [min(each, length - i) for i in range(0, length, each)]
    else:
        lengths = c.ints(split, "the parts' lengths")
    parts = split_by(c, x, axis, lengths)
    if split is None and not keepdims:
        shape = [d for i, d in enumerate(x.shape) if i != axis]
        parts = [c.reshape(p, shape) for p in parts]
    return TensorList(
        tuple(p if isinstance(p, Tensor) else c.typed(p, x.type) for p in parts)
    )


@onnx_operator("Optional", raw=True)
def optional(c: NodeContext, x: Any = None, *, type: Any = None) -> Any:
    return TensorList(()) if x is None else x


@onnx_operator("OptionalGetElement", raw=True)
def optional_get_element(c: NodeContext, x: Any) -> Any:
    return x


@onnx_operator("OptionalHasElement", raw=True)
def optional_has_element(c: NodeContext, x: Any = None) -> np.ndarray:
    return np.array(x is not None and x != TensorList(()))

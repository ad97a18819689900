"""Elements moved, none computed: reshape, transpose, slice, pad, concat …"""

from __future__ import annotations

import math

import numpy as np

from webnn_vk.api.builder import MLOperand
from webnn_vk.compiler.types.broadcasting import broadcast_shapes
from webnn_vk.compiler.types.sizes import alike

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..shape_arithmetic import has_sizes, window
from ..values import Tensor


def _moved(c: NodeContext, x: Tensor, shape: list[int]) -> MLOperand | np.ndarray:
    if x.array is not None:
        return x.array.reshape(shape)
    return c.reshape(x, shape)


@onnx_operator("Reshape", storage=True)
def reshape(
    c: NodeContext, x: Tensor, shape: Tensor, *, allowzero: int = 0
) -> MLOperand | np.ndarray:
    lengths = c.ints(shape, "the new shape")
    if not allowzero:  # sizes that are known at dispatch are never 0 here
        for i, length in enumerate(lengths):
            if length == 0:
                refuse_if(i >= x.rank, f"dimension {i} of shape {list(x.shape)} is to be kept")
                lengths[i] = x.shape[i]
    if lengths.count(-1) == 1:
        rest = math.prod(d for d in lengths if d != -1)
        lengths[lengths.index(-1)] = x.size // rest if rest else 0
    return _moved(c, x, lengths)


@onnx_operator("Flatten", storage=True)
def flatten(c: NodeContext, x: Tensor, *, axis: int = 1) -> MLOperand | np.ndarray:
    refuse_if(not -x.rank <= axis <= x.rank, f"axis {axis} of a tensor of rank {x.rank}")
    if axis < 0:
        axis += x.rank
    return _moved(c, x, [math.prod(x.shape[:axis]), math.prod(x.shape[axis:])])


@onnx_operator("Squeeze", storage=True, moved=("axes",), since=13)
def squeeze(c: NodeContext, x: Tensor, axes: Tensor | None = None) -> MLOperand | np.ndarray:
    given = c.optional_ints(axes, "axes")
    gone = (
        [i for i, d in enumerate(x.shape) if d == 1] if given is None else c.axes(given, x.rank)
    )
    if any(x.shape[a] != 1 for a in gone):
        raise Unsupported(f"axes {gone} of shape {list(x.shape)} are not all 1")
    return _moved(c, x, [d for i, d in enumerate(x.shape) if i not in gone])


@onnx_operator("Unsqueeze", storage=True, moved=("axes",), since=13)
@onnx_operator("ExpandDims", domain=MICROSOFT)
def unsqueeze(c: NodeContext, x: Tensor, axes: Tensor) -> MLOperand | np.ndarray:
    given, shape = c.ints(axes, "axes"), list(x.shape)
    for axis in c.axes(given, x.rank + len(given)):
        shape.insert(axis, 1)
    return _moved(c, x, shape)


@onnx_operator("Transpose", storage=True)
def transpose(c: NodeContext, x: Tensor, *, perm: list[int] | None = None) -> MLOperand:
    return c.transpose(x, list(reversed(range(x.rank))) if perm is None else perm)


@onnx_operator("Concat", storage=True)
def concat(c: NodeContext, *inputs: Tensor, axis: int) -> MLOperand:
    present = [x for x in inputs if 0 not in x.shape] or [inputs[0]]
    if len(present) == 1:
        return present[0].operand
    return c.b.concat(present, c.axis(axis, present[0].rank))


@onnx_operator("Split", storage=True, moved=("split",), since=13)
def split(
    c: NodeContext, x: Tensor, split: Tensor | None = None, *, axis: int = 0,
    num_outputs: int | None = None,
) -> list[MLOperand]:
    outputs = len(c.node.outputs)
    if num_outputs not in (None, outputs):
        raise Unsupported(f"num_outputs is {num_outputs}, the node has {outputs} outputs")
    return split_by(c, x, axis, c.optional_ints(split, "the parts' lengths"))


def split_by(
    c: NodeContext, x: Tensor, axis: int, lengths: list[int] | None
) -> list[MLOperand]:
    """Parts of ``x`` along an axis; as many equal ones (the last may be shorter) as the node has
    outputs when ``lengths`` is None."""
    axis = c.axis(axis, x.rank)
    if lengths is None:
        count = len(c.node.outputs)
        each = -(-x.shape[axis] // count)
        lengths = [min(each, x.shape[axis] - i * each) for i in range(count)]
    if 0 in lengths:
        starts = np.cumsum([0, *lengths[:-1]])
        return [
            c.slice(x, axis, int(s), n)
            if n
            else c.conversion.tensor(np.zeros((*x.shape[:axis], 0, *x.shape[axis + 1 :]), x.type))
            for s, n in zip(starts, lengths, strict=True)
        ]
    return c.b.split(x, lengths, axis=axis)


@onnx_operator("Slice", storage=True, moved=("starts", "ends", "axes"), since=10)
def slice_(
    c: NodeContext, x: Tensor, starts: Tensor, ends: Tensor, axes: Tensor | None = None,
    steps: Tensor | None = None,
) -> MLOperand | np.ndarray:
    bounds = c.ints(starts, "starts"), c.ints(ends, "ends")
    chosen = c.chosen_axes(c.optional_ints(axes, "axes"), x, len(bounds[0]))
    strides_of = c.optional_ints(steps, "steps") or [1] * len(bounds[0])
    begin, sizes, strides = [0] * x.rank, list(x.shape), [1] * x.rank
    backward = []
    shape = list(x.shape)
    for axis, start, end, step in zip(chosen, *bounds, strides_of, strict=True):
        if step == 1 and has_sizes([x.shape[axis], start, end]):
            first, last = window(x.shape[axis], start, end)
            begin[axis], sizes[axis] = first, last - first
            shape[axis] = last - first
            continue
        picked = range(x.shape[axis])[slice(start, end if end > -(2**62) else None, step)]
        shape[axis] = len(picked)
        if not picked:
            continue
        begin[axis], strides[axis] = min(picked), abs(step)
        sizes[axis] = max(picked) - min(picked) + 1
        if step < 0 and len(picked) > 1:
            backward.append(axis)
    if 0 in shape:
        return np.zeros(shape, x.type)
    strides = [
        min(s, 2**31 - 1) if s > 1 and n > 1 else 1 for s, n in zip(strides, shape, strict=True)
    ]
    result = x.operand
    if not alike(sizes, x.shape) or any(s != 1 for s in strides):
        result = c.b.slice(x, begin, sizes, strides=strides)
    return c.b.reverse(result, axes=backward) if backward else result


@onnx_operator("Pad", storage=True, moved=("pads", "value"), since=11)
@onnx_operator("Pad", domain=MICROSOFT)
def pad(
    c: NodeContext, x: Tensor, pads: Tensor, value: Tensor | None = None,
    axes: Tensor | None = None, *, mode: str = "constant",
) -> MLOperand:
    amounts = c.ints(pads, "the padding")
    if axes is not None:
        chosen = [c.axis(a, x.rank) for a in c.ints(axes, "axes")]
        full = [0] * (2 * x.rank)
        for i, axis in enumerate(chosen):
            full[axis], full[axis + x.rank] = amounts[i], amounts[i + len(chosen)]
        amounts = full
    number = 0
    if value is not None and value.size:
        number = value.value("the padding's value").reshape(-1)[0].item()
    return pad_by(c, x, amounts, mode, number)


def pad_by(
    c: NodeContext, x: Tensor, amounts: list[int], mode: str, value: float
) -> MLOperand:
    """ONNX's pad; negative amounts cut off."""
    rank = x.rank
    result = x.operand
    cut = [min(a, 0) for a in amounts]
    if any(cut):
        starts = [-a for a in cut[:rank]]
        sizes = [d + a + b for d, a, b in zip(x.shape, cut[:rank], cut[rank:], strict=True)]
        amounts = [max(a, 0) for a in amounts]
        if min(sizes) < 1:
            return _padding_alone(c, x, sizes, amounts, mode, value)
        result = c.b.slice(result, starts, sizes)
    before, after = amounts[:rank], amounts[rank:]
    if not any(amounts):
        return result
    if mode == "wrap":
        for axis in range(rank):
            result = _wrap(c, result, axis, before[axis], after[axis])
        return result
    modes = {"constant": "constant", "edge": "edge", "reflect": "reflection"}
    refuse_if(mode not in modes, f"mode {mode!r} is unknown")
    if mode == "constant":
        return c.b.pad(result, before, after, value=int(value) if x.type == "bool" else value)
    return c.b.pad(result, before, after, mode=modes[mode])


def _padding_alone(
    c: NodeContext, x: Tensor, left: list[int], amounts: list[int], mode: str, value: float
) -> MLOperand:
    """Nothing of the input is left, with ``left`` elements along its dimensions."""
    rank = x.rank
    shape = [n + a + b for n, a, b in zip(left, amounts[:rank], amounts[rank:], strict=True)]
    if min(left) < 0 or min(shape) < 1 or mode != "constant":
        raise Unsupported(
            f"of {list(x.shape)} elements {left} would be left, and padding ({mode}) would make "
            f"them {shape}: a constant is expected, and no empty dimension, which WebNN has not"
        )
    check_made(*shape)
    return c.b.expand(c.constant(value, x.operand.data_type), shape)


def _wrap(c: NodeContext, x: MLOperand, axis: int, before: int, after: int) -> MLOperand:
    if not before and not after:
        return x
    check_made(before + x.shape[axis] + after)
    indices = np.arange(-before, x.shape[axis] + after) % x.shape[axis]
    return c.b.gather(x, indices.astype(np.int32), axis=axis)


@onnx_operator("Expand", storage=True)
def expand(c: NodeContext, x: Tensor, shape: Tensor) -> MLOperand:
    wanted = c.ints(shape, "the shape")
    lengths = broadcast_shapes(x.shape, wanted)
    if lengths is None or any(d < 0 for d in wanted):
        raise Unsupported(f"shape {list(x.shape)} can't be expanded to {wanted}")
    return x.operand if alike(lengths, x.shape) else c.b.expand(x, lengths)


@onnx_operator("Tile", storage=True)
def tile(c: NodeContext, x: Tensor, repeats: Tensor) -> MLOperand:
    return c.b.tile(x, c.ints(repeats, "the repetitions"))


@onnx_operator("Trilu", storage=True)
@onnx_operator("Trilu", domain=MICROSOFT)
def trilu(c: NodeContext, x: Tensor, k: Tensor | None = None, *, upper: int = 1) -> MLOperand:
    diagonal = 0 if k is None else c.int(k, "the diagonal")
    # Beyond the matrix all diagonals keep the same; WebNN counts in 32 bits.
    reach = max(x.shape[-2:])
    return c.b.triangular(x, upper=bool(upper), diagonal=min(max(diagonal, -reach), reach))


@onnx_operator("DepthToSpace", storage=True)
def depth_to_space(c: NodeContext, x: Tensor, *, blocksize: int, mode: str = "DCR") -> MLOperand:
    n, depth, h, w = x.shape
    s = blocksize
    if mode == "DCR":
        parts = c.transpose(c.reshape(x, [n, s, s, depth // s**2, h, w]), [0, 3, 4, 1, 5, 2])
    else:
        parts = c.transpose(c.reshape(x, [n, depth // s**2, s, s, h, w]), [0, 1, 4, 2, 5, 3])
    return c.reshape(parts, [n, depth // s**2, h * s, w * s])


@onnx_operator("SpaceToDepth", storage=True)
def space_to_depth(c: NodeContext, x: Tensor, *, blocksize: int, mode: str = "DCR") -> MLOperand:
    n, depth, h, w = x.shape
    s = blocksize
    parts = c.reshape(x, [n, depth, h // s, s, w // s, s])
    order = [0, 3, 5, 1, 2, 4] if mode == "DCR" else [0, 1, 3, 5, 2, 4]
    return c.reshape(c.transpose(parts, order), [n, depth * s * s, h // s, w // s])


@onnx_operator("ReverseSequence", storage=True)
def reverse_sequence(
    c: NodeContext, x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> MLOperand:
    counts = np.array(c.ints(lengths, "the lengths"))
    check_made(*x.shape)
    steps = np.arange(x.shape[time_axis])
    # Step t of batch b comes from lengths[b] − 1 − t while that is not negative.
    source = np.where(steps[:, None] < counts, counts - 1 - steps[:, None], steps[:, None])
    if time_axis > batch_axis:
        source = source.T
    view = [1] * x.rank
    view[batch_axis], view[time_axis] = x.shape[batch_axis], x.shape[time_axis]
    indices = np.broadcast_to(source.reshape(view), x.shape).astype(np.int32)
    return c.b.gather_elements(x, np.ascontiguousarray(indices), axis=time_axis)


@onnx_operator("CenterCropPad", storage=True)
def center_crop_pad(
    c: NodeContext, x: Tensor, shape: Tensor, *, axes: list[int] | None = None
) -> MLOperand:
    chosen = c.chosen_axes(axes, x)
    amounts = [0] * (2 * x.rank)
    for axis, length in zip(chosen, c.ints(shape, "the shape"), strict=True):
        extra = length - x.shape[axis]
        before = extra // 2 if extra >= 0 else -(-extra // 2)
        amounts[axis], amounts[axis + x.rank] = before, extra - before
    return pad_by(c, x, amounts, "constant", 0)

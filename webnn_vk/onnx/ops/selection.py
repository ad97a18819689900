"""ArgMax, ArgMin and TopK."""

from __future__ import annotations

import numpy as np

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext, check_made
from ..errors import Unsupported, refuse_if
from ..records import onnx_operator
from ..values import Tensor

#: Elements of the table of comparisons up to which TopK ranks all elements at once.
_MAX_TABLE = 1 << 24
_MAX_STEPS = 512


@onnx_operator("ArgMax", "ArgMin")
def arg_best(
    c: NodeContext, x: Tensor, *, axis: int = 0, keepdims: int = 1, select_last_index: int = 0
) -> MLOperand:
    axis = c.axis(axis, x.rank)
    name = "arg_max" if c.operator == "ArgMax" else "arg_min"
    operand = c.b.reverse(x, axes=[axis]) if select_last_index else x.operand
    found = getattr(c.b, name)(
        operand, axis, keep_dimensions=bool(keepdims), output_data_type="int64"
    )
    if select_last_index:
        found = c.b.sub(c.constant(x.shape[axis] - 1, "int64"), found)
    return found


@onnx_operator("TopK", moved=("k",), since=10)
def top_k(
    c: NodeContext, x: Tensor, k: Tensor, *, axis: int = -1, largest: int = 1, sorted: int = 1
) -> list[MLOperand]:
    count = c.int(k, "k")
    axis = c.axis(axis, x.rank)
    length = x.shape[axis]
    refuse_if(not 1 <= count <= length, f"k is {count} of {length} elements")
    check_made(length)
    order = [i for i in range(x.rank) if i != axis] + [axis]
    rows = c.transpose(x, order)
    lead = rows.shape[:-1]
    flat = c.reshape(rows, [x.size // length, length])
    method = _by_rank if x.size * length <= _MAX_TABLE else _by_steps
    indices = method(c, flat, count, bool(largest))
    values = c.b.gather_elements(flat, indices, axis=1)
    back = list(np.argsort(order))
    return [
        c.transpose(c.reshape(v, [*lead, count]), back)
        for v in (values, c.b.cast(indices, "int64"))
    ]


def _by_rank(c: NodeContext, x: MLOperand, k: int, largest: bool) -> MLOperand:
    """An element's place is the number of those before it; of equal ones the first comes first."""
    rows, n = x.shape
    mine, other = c.reshape(x, [rows, n, 1]), c.reshape(x, [rows, 1, n])
    better = (c.b.greater if largest else c.b.lesser)(other, mine)
    at = np.arange(n)
    earlier = c.constant(at[None, None, :] < at[None, :, None], "uint8")
    tie = c.b.logical_and(c.b.equal(other, mine), earlier)
    before = c.b.cast(c.b.logical_or(better, tie), "int32")
    place = c.b.reduce_sum(before, axes=[2])
    # The element whose place is r, for each r below k.
    wanted = c.constant(np.arange(k)[None, :, None], "int32")
    hit = c.b.cast(c.b.equal(c.reshape(place, [rows, 1, n]), wanted), "int32")
    return c.b.reduce_sum(c.b.mul(hit, c.constant(at, "int32")), axes=[2])


def _by_steps(c: NodeContext, x: MLOperand, k: int, largest: bool) -> MLOperand:
    """The best element, k times, those found before set aside."""
    refuse_if(k > _MAX_STEPS, f"the best {k} of {x.shape[1]} elements need a sort, WebNN has none")
    if not x.data_type.startswith("float"):
        raise Unsupported(f"the best of {x.shape[1]} integers need a sort, WebNN has none")
    sign = -1 if largest else 1
    worst = c.constant(sign * np.inf, "float32")
    # Infinity marks what was found. Infinite elements become the last finite number instead, and
    # elements of that number the one before it.
    limit = np.finfo(np.float32).max
    x = c.cast(x, "float32")
    x = c.b.where(
        c.b.equal(x, worst), c.constant(sign * limit, "float32"),
        (c.b.max if largest else c.b.min)(x, c.constant(sign * np.nextafter(limit, 0), "float32")),
    )
    places = c.constant(np.arange(x.shape[1])[None, :], "int32")
    found = []
    for _ in range(k):
        best = (c.b.arg_max if largest else c.b.arg_min)(x, 1, keep_dimensions=True)
        found.append(best)
        x = c.b.where(c.b.equal(places, best), worst, x)
    return found[0] if k == 1 else c.b.concat(found, 1)

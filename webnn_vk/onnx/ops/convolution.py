"""Convolutions of one, two and three spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..errors import Unsupported
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .linear import activate

Pairs = list[tuple[int, int]]

#: Convolutions that one of three dimensions becomes, at most.
MAX_TAPS = 1024



def check_window(rank: int, **lists: Sequence[int]) -> None:
    """A positive number for each of ``rank`` spatial dimensions in every list."""
    for name, numbers in lists.items():
        if len(numbers) != rank or any(n < 1 for n in numbers):
            raise Unsupported(
                f"{name} is {list(numbers)}; {rank} positive numbers are expected, one for each "
                "spatial dimension"
            )


def _check_kernel(kernel_shape: list[int] | None, w: Tensor) -> None:
    if kernel_shape and tuple(kernel_shape) != w.shape[2:]:
        raise Unsupported(f"kernel_shape is {kernel_shape}, the weights are {list(w.shape)}")


def paddings(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Pairs:
    """(before, after) per spatial dimension, as ``auto_pad`` has it."""
    rank = len(spatial)
    check_window(rank, kernel=kernel, strides=strides, dilations=dilations)
    if auto_pad in ("", "NOTSET"):
        pads = [0] * (2 * rank) if not pads else pads
        if len(pads) != 2 * rank:
            raise Unsupported(f"pads is {list(pads)}; {2 * rank} numbers are expected")
        return [(pads[i], pads[i + rank]) for i in range(rank)]
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise Unsupported(f"auto_pad {auto_pad!r} is unknown")
    made = []
    for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True):
        total = max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
        small = total // 2
        made.append(
            (small, total - small) if auto_pad == "SAME_UPPER" else (total - small, small)
        )
    return made


@onnx_operator("Conv")
def conv(
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    rank = x.rank - 2
    strides = strides or [1] * rank
    dilations = dilations or [1] * rank
    _check_kernel(kernel_shape, w)
    padding = paddings(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    return convolve(c, x, w, bias, padding, strides, dilations, group)


def convolve(
    c: NodeContext,
    x: Tensor | MLOperand,
    w: Tensor | MLOperand,
    bias: Tensor | MLOperand | None,
    padding: Pairs,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> MLOperand:
    """A convolution over 1, 2 or 3 spatial dimensions by conv2d."""
    spatial = len(x.shape) - 2
    if len(w.shape) != len(x.shape):
        raise Unsupported(f"input {list(x.shape)} and filter {list(w.shape)} differ in rank")
    if spatial == 1:
        # A dimension of 1 in front: rows of height 1.
        result = convolve(
            c, c.reshape(x, [*x.shape[:2], 1, x.shape[2]]),
            c.reshape(w, [*w.shape[:2], 1, w.shape[2]]),
            bias, [(0, 0), *padding], [1, *strides], [1, *dilations], groups,
        )
        return c.reshape(result, [*result.shape[:2], result.shape[3]])
    if spatial == 3:
        return _convolve_3d(c, x, w, bias, padding, strides, dilations, groups)
    if spatial != 2:
        raise Unsupported(f"{spatial} spatial dimensions; 1 to 3 are supported")
    operand = c.operand(x)
    if any(p < 0 for pair in padding for p in pair):
        raise Unsupported(f"padding is {padding}: WebNN has none below 0")
    options = {} if bias is None else {"bias": bias}
    return c.b.conv2d(
        operand, w, padding=[*padding[0], *padding[1]], strides=list(strides),
        dilations=list(dilations), groups=groups, **options,
    )


def _taps(w: Tensor | MLOperand) -> int:
    """The depth of a 3-D filter, each step of which becomes a convolution."""
    if w.shape[2] > MAX_TAPS:
        raise Unsupported(f"a filter {w.shape[2]} deep; {MAX_TAPS} at most")
    return w.shape[2]


def _convolve_3d(
    c: NodeContext,
    x: Tensor | MLOperand,
    w: Tensor | MLOperand,
    bias: Tensor | MLOperand | None,
    padding: Pairs,
    strides: Sequence[int],
    dilations: Sequence[int],
    groups: int,
) -> MLOperand:
    """A sum over the filter's depth of 2-D convolutions of all depths at once (as batches)."""
    n, channels = x.shape[:2]
    padded = c.pad(x, [(0, 0), (0, 0), padding[0], (0, 0), (0, 0)])
    depth, taps = padded.shape[2], _taps(w)
    count = (depth - (taps - 1) * dilations[0] - 1) // strides[0] + 1
    if count < 1:
        raise Unsupported("the filter is deeper than the padded input")
    total = None
    for k in range(taps):
        reach = (count - 1) * strides[0] + 1
        part = c.slice(padded, 2, k * dilations[0], reach, strides[0])
        part = c.transpose(part, [0, 2, 1, 3, 4])
        part = c.reshape(part, [n * count, channels, *part.shape[3:]])
        tap = c.reshape(c.slice(w, 2, k, 1), [*w.shape[:2], *w.shape[3:]])
        one = convolve(
            c, part, tap, bias if k == 0 else None, padding[1:], strides[1:], dilations[1:], groups
        )
        total = one if total is None else c.b.add(total, one)
    result = c.reshape(total, [n, count, *total.shape[1:]])
    return c.transpose(result, [0, 2, 1, 3, 4])


@onnx_operator("ConvTranspose")
def conv_transpose(
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    rank = x.rank - 2
    strides = strides or [1] * rank
    dilations = dilations or [1] * rank
    extra = output_padding or [0] * rank
    check_window(rank, strides=strides, dilations=dilations)
    _check_kernel(kernel_shape, w)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [
        s * (n - 1) + e + r
        for s, n, e, r in zip(strides, x.shape[2:], extra, reach, strict=True)
    ]
    if output_shape:
        totals = [f - o for f, o in zip(full, output_shape[-rank:], strict=True)]
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [f - n * s for f, n, s in zip(full, x.shape[2:], strides, strict=True)]
    else:
        totals = None
    if totals is None:
        padding = paddings(x.shape[2:], w.shape[2:], strides, dilations, pads, auto_pad)
    else:
        padding = [
            (t // 2, t - t // 2) if auto_pad == "SAME_UPPER" else (t - t // 2, t // 2)
            for t in totals
        ]
    return _transposed(c, x, w, bias, padding, strides, dilations, extra, group)


def _transposed(
    c: NodeContext,
    x: Tensor | MLOperand,
    w: Tensor | MLOperand,
    bias: Tensor | MLOperand | None,
    padding: Pairs,
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> MLOperand:
    spatial = len(x.shape) - 2
    if spatial == 1:
        result = _transposed(
            c, c.reshape(x, [*x.shape[:2], 1, x.shape[2]]),
            c.reshape(w, [*w.shape[:2], 1, w.shape[2]]),
            bias, [(0, 0), *padding], [1, *strides], [1, *dilations], [0, *extra], groups,
        )
        return c.reshape(result, [*result.shape[:2], result.shape[3]])
    if spatial == 3:
        return _transposed_3d(c, x, w, bias, padding, strides, dilations, extra, groups)
    if spatial != 2:
        raise Unsupported(f"{spatial} spatial dimensions; 1 to 3 are supported")
    # The whole result without padding, then cut or padded: WebNN bounds output_padding by strides.
    result = c.b.conv_transpose2d(
        c.operand(x), w, strides=list(strides), dilations=list(dilations), groups=groups,
        padding=[max(p, 0) for pair in _inside(padding, extra) for p in pair],
    )
    result = _trimmed(c, result, padding, _inside(padding, extra), extra)
    if bias is not None:
        result = c.b.add(result, c.reshape(bias, [1, bias.shape[0], 1, 1]))
    return result


def _inside(padding: Pairs, extra: Sequence[int]) -> Pairs:
    """Padding that conv_transpose2d itself takes off: none where the result has to grow."""
    return [
        (max(before, 0), max(after - e, 0))
        for (before, after), e in zip(padding, extra, strict=True)
    ]


def _trimmed(
    c: NodeContext, x: MLOperand, padding: Pairs, done: Pairs, extra: Sequence[int]
) -> MLOperand:
    """What remains to add at the edges: places that no element of the input reaches."""
    grow = [
        (d[0] - p[0], d[1] - p[1] + e)
        for p, d, e in zip(padding, done, extra, strict=True)
    ]
    return c.pad(x, [(0, 0), (0, 0), *grow])


def _transposed_3d(
    c: NodeContext,
    x: Tensor | MLOperand,
    w: Tensor | MLOperand,
    bias: Tensor | MLOperand | None,
    padding: Pairs,
    strides: Sequence[int],
    dilations: Sequence[int],
    extra: Sequence[int],
    groups: int,
) -> MLOperand:
    """Each depth of the filter makes a 2-D result; they are laid out at their depths and added."""
    n, channels, depth = x.shape[:3]
    flat = c.reshape(c.transpose(x, [0, 2, 1, 3, 4]), [n * depth, channels, *x.shape[3:]])
    taps, stride, dilation = _taps(w), strides[0], dilations[0]
    length = (depth - 1) * stride + (taps - 1) * dilation + 1
    total = None
    for k in range(taps):
        tap = c.reshape(c.slice(w, 2, k, 1), [*w.shape[:2], *w.shape[3:]])
        part = _transposed(
            c, flat, tap, None, padding[1:], strides[1:], dilations[1:], extra[1:], groups
        )
        lead = [n, depth, *part.shape[1:]]
        part = c.reshape(part, [n, depth, 1, *part.shape[1:]])
        # stride − 1 zeros after each depth
        part = c.pad(part, [(0, 0), (0, 0), (0, stride - 1), (0, 0), (0, 0), (0, 0)])
        part = c.reshape(part, [n, depth * stride, *lead[2:]])
        part = c.slice(part, 1, 0, (depth - 1) * stride + 1)
        after = length - k * dilation - part.shape[1]
        part = c.pad(part, [(0, 0), (k * dilation, after), (0, 0), (0, 0), (0, 0)])
        total = part if total is None else c.b.add(total, part)
    before, after = padding[0][0], padding[0][1] - extra[0]
    if after < 0:
        total = c.pad(total, [(0, 0), (0, -after), (0, 0), (0, 0), (0, 0)])
    total = c.slice(total, 1, before, total.shape[1] - before - max(after, 0))
    if bias is not None:
        total = c.b.add(total, c.reshape(bias, [1, 1, bias.shape[0], 1, 1]))
    return c.transpose(total, [0, 2, 1, 3, 4])


@onnx_operator("FusedConv", domain=MICROSOFT)
def fused_conv(
    c: NodeContext,
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    z: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    result = conv(
        c, x, w, bias, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads,
        strides=strides,
    )
    if z is not None:
        result = c.b.add(result, z)
    return activate(c, result, activation, activation_params)

"""Convolutions of one, two and three spatial dimensions."""

from __future__ import annotations

from collections.abc import Sequence

from webnn_vk.api.builder import MLOperand
from webnn_vk.support.dataclass import dataclass

from ..context import NodeContext
from ..errors import Unsupported, refuse_if
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .matrix_products import activate

Pairs = list[tuple[int, int]]

#: The deepest 3-D filter: each step of its depth becomes a 2-D convolution.
MAX_TAPS = 1024


@dataclass(frozen=True)
class Window:
    """The window of a convolution or pooling, with one number (or pair) for each spatial dimension.
    ``sizes``: a pooling's output sizes. ``extra``: a transposed convolution's output padding."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    padding: Pairs
    sizes: Sequence[int] = ()
    extra: Sequence[int] = ()

    def part(self, start: int, stop: int | None = None) -> Window:
        """The window in some of the dimensions."""
        at = slice(start, stop)
        return Window(
            self.kernel[at], self.strides[at], self.dilations[at], self.padding[at],
            self.sizes[at], self.extra[at],
        )

    def with_rows(self) -> Window:
        """The same window with a dimension of size 1 in front."""
        return Window(
            [1, *self.kernel], [1, *self.strides], [1, *self.dilations], [(0, 0), *self.padding],
            [1, *self.sizes], [0, *self.extra],
        )


@dataclass(frozen=True)
class WindowAttributes:
    """The attributes that describe a window."""

    auto_pad: str = "NOTSET"
    dilations: list[int] | None = None
    kernel_shape: list[int] | None = None
    pads: list[int] | None = None
    strides: list[int] | None = None

    def on(self, spatial: Sequence[int], kernel: Sequence[int] | None = None) -> Window:
        """The window on an input of these spatial sizes; ``kernel`` is ``kernel_shape`` by
        default."""
        kernel = self.kernel_shape if kernel is None else kernel
        if kernel is None:
            raise Unsupported("kernel_shape is missing")
        strides = self.strides or [1] * len(kernel)
        dilations = self.dilations or [1] * len(kernel)
        padding = paddings(spatial, kernel, strides, dilations, self.pads, self.auto_pad)
        return Window(kernel, strides, dilations, padding)


@dataclass(frozen=True)
class ConvAttributes(WindowAttributes):
    """The attributes that describe a convolution."""

    group: int = 1

    def of(self, x: Tensor, w: Tensor) -> Window:
        """The window of the filter ``w`` on ``x``."""
        self.check_kernel(w)
        return self.on(x.shape[2:], w.shape[2:])

    def check_kernel(self, w: Tensor) -> None:
        """Unsupported if ``kernel_shape`` is not the filter's."""
        if self.kernel_shape and tuple(self.kernel_shape) != w.shape[2:]:
            raise Unsupported(f"kernel_shape is {self.kernel_shape}, the weights are "
                              f"{list(w.shape)}")


def check_window(rank: int, **lists: Sequence[int]) -> None:
    """Unsupported if a list does not have a positive number for each spatial dimension."""
    for name, numbers in lists.items():
        if len(numbers) != rank or any(n < 1 for n in numbers):
            raise Unsupported(
                f"{name} is {list(numbers)}; {rank} positive numbers are expected, one for each "
                "spatial dimension"
            )


def paddings(
    spatial: Sequence[int],
    kernel: Sequence[int],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int] | None,
    auto_pad: str,
) -> Pairs:
    """The padding (before, after) of each spatial dimension, from ``pads`` and ``auto_pad``."""
    rank = len(spatial)
    check_window(rank, kernel=kernel, strides=strides, dilations=dilations)
    if auto_pad in ("", "NOTSET"):
        pads = [0] * (2 * rank) if not pads else pads
        refuse_if(len(pads) != 2 * rank, f"pads is {list(pads)}; {2 * rank} numbers are expected")
        return [(pads[i], pads[i + rank]) for i in range(rank)]
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    refuse_if(auto_pad not in ("SAME_UPPER", "SAME_LOWER"), f"auto_pad {auto_pad!r} is unknown")
    totals = [
        max(0, (-(-size // stride) - 1) * stride + (k - 1) * dilation + 1 - size)
        for size, k, stride, dilation in zip(spatial, kernel, strides, dilations, strict=True)
    ]
    return _halves(totals, auto_pad == "SAME_UPPER")


def _halves(totals: Sequence[int], smaller_first: bool) -> Pairs:
    """Each total as a pair of halves."""
    return [(t // 2, t - t // 2) if smaller_first else (t - t // 2, t // 2) for t in totals]


def with_rows(c: NodeContext, x: Tensor | MLOperand) -> MLOperand:
    """A 1-D image as a 2-D one with one row."""
    return c.reshape(x, [*x.shape[:2], 1, x.shape[2]])


def without_rows(c: NodeContext, x: MLOperand) -> MLOperand:
    """The inverse of ``with_rows``."""
    return c.reshape(x, [*x.shape[:2], x.shape[3]])


def channels_first(c: NodeContext, x: Tensor) -> Tensor:
    """An image with its last dimension moved behind the first."""
    return c.typed(c.transpose(x, [0, x.rank - 1, *range(1, x.rank - 1)]), x.type)


def channels_last(c: NodeContext, x: MLOperand) -> MLOperand:
    """The inverse of ``channels_first``."""
    return c.transpose(x, [0, *range(2, len(x.shape)), 1])


@onnx_operator("Conv")
def conv(
    c: NodeContext, x: Tensor, w: Tensor, bias: Tensor | None = None, *, given: ConvAttributes
) -> MLOperand:
    return convolve(c, x, w, bias, given.of(x, w), given.group)


def convolve(
    c: NodeContext, x: Tensor | MLOperand, w: Tensor | MLOperand, bias: Tensor | MLOperand | None,
    window: Window, groups: int,
) -> MLOperand:
    """A convolution over 1, 2 or 3 spatial dimensions by conv2d."""
    spatial = len(x.shape) - 2
    if len(w.shape) != len(x.shape):
        raise Unsupported(f"input {list(x.shape)} and filter {list(w.shape)} differ in rank")
    if spatial == 1:
        flat, row = with_rows(c, x), with_rows(c, w)
        return without_rows(c, convolve(c, flat, row, bias, window.with_rows(), groups))
    if spatial == 3:
        return _convolve_3d(c, x, w, bias, window, groups)
    refuse_if(spatial != 2, f"{spatial} spatial dimensions; 1 to 3 are supported")
    operand, padding = c.operand(x), window.padding
    if any(p < 0 for pair in padding for p in pair):
        raise Unsupported(f"padding is {padding}: WebNN has none below 0")
    options = {} if bias is None else {"bias": bias}
    return c.b.conv2d(
        operand, w, padding=[*padding[0], *padding[1]], strides=list(window.strides),
        dilations=list(window.dilations), groups=groups, **options,
    )


def _depth(w: Tensor | MLOperand) -> int:
    """The depth of a 3-D filter."""
    refuse_if(w.shape[2] > MAX_TAPS, f"a filter {w.shape[2]} deep; {MAX_TAPS} at most")
    return w.shape[2]


def _tap(c: NodeContext, w: Tensor | MLOperand, k: int) -> MLOperand:
    """The 2-D filter at one depth of a 3-D filter."""
    return c.reshape(c.slice(w, 2, k, 1), [*w.shape[:2], *w.shape[3:]])


def _convolve_3d(
    c: NodeContext, x: Tensor | MLOperand, w: Tensor | MLOperand, bias: Tensor | MLOperand | None,
    window: Window, groups: int,
) -> MLOperand:
    """A sum over the filter's depth of 2-D convolutions, each of all depths (as batches)."""
    n, channels = x.shape[:2]
    stride, dilation = window.strides[0], window.dilations[0]
    padded = c.pad(x, [(0, 0), (0, 0), window.padding[0], (0, 0), (0, 0)])
    count = (padded.shape[2] - (_depth(w) - 1) * dilation - 1) // stride + 1
    refuse_if(count < 1, "the filter is deeper than the padded input")
    total = None
    for k in range(_depth(w)):
        part = c.slice(padded, 2, k * dilation, (count - 1) * stride + 1, stride)
        part = c.transpose(part, [0, 2, 1, 3, 4])
        part = c.reshape(part, [n * count, channels, *part.shape[3:]])
        first_bias = bias if k == 0 else None
        one = convolve(c, part, _tap(c, w, k), first_bias, window.part(1), groups)
        total = one if total is None else c.b.add(total, one)
    result = c.reshape(total, [n, count, *total.shape[1:]])
    return c.transpose(result, [0, 2, 1, 3, 4])


@onnx_operator("ConvTranspose")
def conv_transpose(
    c: NodeContext, x: Tensor, w: Tensor, bias: Tensor | None = None, *, given: ConvAttributes,
    output_padding: list[int] | None = None, output_shape: list[int] | None = None,
) -> MLOperand:
    rank, auto_pad = x.rank - 2, given.auto_pad
    strides, dilations = given.strides or [1] * rank, given.dilations or [1] * rank
    extra = output_padding or [0] * rank
    check_window(rank, strides=strides, dilations=dilations)
    given.check_kernel(w)
    reach = [(k - 1) * d + 1 for k, d in zip(w.shape[2:], dilations, strict=True)]
    full = [
        s * (n - 1) + e + r
        for s, n, e, r in zip(strides, x.shape[2:], extra, reach, strict=True)
    ]
    if output_shape:
        totals = [f - o for f, o in zip(full, output_shape[-rank:], strict=True)]
        padding = _halves(totals, auto_pad == "SAME_UPPER")
    elif auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        totals = [f - n * s for f, n, s in zip(full, x.shape[2:], strides, strict=True)]
        padding = _halves(totals, auto_pad == "SAME_UPPER")
    else:
        padding = given.of(x, w).padding
    window = Window(w.shape[2:], strides, dilations, padding, extra=extra)
    return transposed(c, x, w, bias, window, given.group)


def transposed(
    c: NodeContext, x: Tensor | MLOperand, w: Tensor | MLOperand, bias: Tensor | MLOperand | None,
    window: Window, groups: int,
) -> MLOperand:
    """A transposed convolution over 1, 2 or 3 spatial dimensions by conv_transpose2d."""
    spatial = len(x.shape) - 2
    if spatial == 1:
        flat, row = with_rows(c, x), with_rows(c, w)
        return without_rows(c, transposed(c, flat, row, bias, window.with_rows(), groups))
    if spatial == 3:
        return _transposed_3d(c, x, w, bias, window, groups)
    refuse_if(spatial != 2, f"{spatial} spatial dimensions; 1 to 3 are supported")
    # WebNN bounds output_padding by the strides, so conv_transpose2d takes off what it can of the
    # padding, and a pad adds the edges that no element of the input reaches.
    cut = [
        (max(before, 0), max(after - e, 0))
        for (before, after), e in zip(window.padding, window.extra, strict=True)
    ]
    result = c.b.conv_transpose2d(
        c.operand(x), w, strides=list(window.strides), dilations=list(window.dilations),
        groups=groups, padding=[p for pair in cut for p in pair],
    )
    grow = [
        (d[0] - p[0], d[1] - p[1] + e)
        for p, d, e in zip(window.padding, cut, window.extra, strict=True)
    ]
    result = c.pad(result, [(0, 0), (0, 0), *grow])
    if bias is not None:
        result = c.b.add(result, c.reshape(bias, [1, bias.shape[0], 1, 1]))
    return result


def _transposed_3d(
    c: NodeContext, x: Tensor | MLOperand, w: Tensor | MLOperand, bias: Tensor | MLOperand | None,
    window: Window, groups: int,
) -> MLOperand:
    """Each depth of the filter makes a 2-D result; these are put at their depths and added."""
    n, channels, depth = x.shape[:3]
    flat = c.reshape(c.transpose(x, [0, 2, 1, 3, 4]), [n * depth, channels, *x.shape[3:]])
    taps, stride, dilation = _depth(w), window.strides[0], window.dilations[0]
    length = (depth - 1) * stride + (taps - 1) * dilation + 1
    total = None
    for k in range(taps):
        part = transposed(c, flat, _tap(c, w, k), None, window.part(1), groups)
        image = part.shape[1:]
        part = c.reshape(part, [n, depth, 1, *image])
        # stride − 1 zeros after each depth
        part = c.pad(part, [(0, 0), (0, 0), (0, stride - 1), (0, 0), (0, 0), (0, 0)])
        part = c.reshape(part, [n, depth * stride, *image])
        part = c.slice(part, 1, 0, (depth - 1) * stride + 1)
        after = length - k * dilation - part.shape[1]
        part = c.pad(part, [(0, 0), (k * dilation, after), (0, 0), (0, 0), (0, 0)])
        total = part if total is None else c.b.add(total, part)
    (before, after), extra = window.padding[0], window.extra[0]
    after -= extra
    # Padding below 0 adds edges that no element of the input reaches.
    edges = (max(-before, 0), max(-after, 0))
    total = c.pad(total, [(0, 0), edges, (0, 0), (0, 0), (0, 0)])
    before, after = max(before, 0), max(after, 0)
    total = c.slice(total, 1, before, total.shape[1] - before - after)
    if bias is not None:
        total = c.b.add(total, c.reshape(bias, [1, 1, bias.shape[0], 1, 1]))
    return c.transpose(total, [0, 2, 1, 3, 4])


@onnx_operator("FusedConv", "NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def fused_conv(
    c: NodeContext, x: Tensor, w: Tensor, bias: Tensor | None = None, z: Tensor | None = None, *,
    given: ConvAttributes, activation: str = "", activation_params: list[float] | None = None,
) -> MLOperand:
    last = c.operator.startswith("Nhwc")
    if last:
        x, w = channels_first(c, x), channels_first(c, w)
        z = None if z is None else channels_first(c, z)
    result = conv(c, x, w, bias, given=given)
    if z is not None:
        result = c.b.add(result, z)
    result = activate(c, result, activation, dict(enumerate(activation_params or [])))
    return channels_last(c, result) if last else result

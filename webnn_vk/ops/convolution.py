"""Two-dimensional convolution and transposed convolution."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.lib.stride_tricks import as_strided

from ..data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import U32, Enum, Operand, SequenceOf
from .lowering import Kernel
from .record import Check, Inferred, Like, Limits, operator

_LIMITS = {
    "input": Limits(FLOAT_TYPES, (4, 4)),
    "filter": Like("input"),
    "bias": Like("input", rank=(1, 1)),
    "output": Like("input"),
}
InputLayout = Enum("nchw", "nhwc")
Conv2dFilterLayout = Enum("oihw", "hwio", "ohwi", "ihwo")
ConvTranspose2dFilterLayout = Enum("iohw", "hwoi", "ohwi")

# Bytes of unfolded input that the CPU reference holds at a time.
_UNFOLDED_BYTES = 32 << 20


def arrange(sizes: tuple, layout: str, target: str) -> tuple:
    """Items that belong to the letters of ``layout``, in the order of ``target``'s letters."""
    return tuple(sizes[layout.index(letter)] for letter in target)


def _numbers(check: Check, name: str, given: tuple[int, ...] | None, default: tuple[int, ...]):
    value = default if given is None else given
    check.that(
        len(value) == len(default),
        f"{name} {list(value)} has {len(value)} items; {len(default)} are expected",
    )
    return value


def _positive(check: Check, name: str, given: tuple[int, ...] | None) -> tuple[int, ...]:
    value = _numbers(check, name, given, (1, 1))
    check.that(all(value), f"{name} {list(value)}: 0 is not allowed")
    return value


@operator("§8.9.10", **_LIMITS)
def conv2d(
    check: Check,
    input: Operand,
    filter: Operand,
    *,
    padding: SequenceOf(U32) = None,
    strides: SequenceOf(U32) = None,
    dilations: SequenceOf(U32) = None,
    groups: U32 = 1,
    input_layout: InputLayout = "nchw",
    filter_layout: Conv2dFilterLayout = "oihw",
    bias: Operand = None,
):
    """Two-dimensional convolution of a 4-D input with a 4-D filter.

    ``padding`` is [top, bottom, left, right] in rows and columns of zeros; ``strides`` and
    ``dilations`` are [height, width]; ``bias`` has one element per output channel. With ``groups``
    equal to the number of input channels it is a depthwise convolution.
    """
    check.same_type(input=input, filter=filter, bias=bias)
    padding = _numbers(check, "padding", padding, (0, 0, 0, 0))
    strides = _positive(check, "strides", strides)
    dilations = _positive(check, "dilations", dilations)
    check.that(groups != 0, "groups is 0; at least 1 is expected")
    n, channels, height, width = arrange(input.shape, input_layout, "nchw")
    outputs, inputs, rows, columns = arrange(filter.shape, filter_layout, "oihw")
    check.that(
        channels % groups == 0,
        f"input is {input} ({input_layout}): its {channels} channels do not divide into "
        f"{groups} groups",
    )
    check.that(
        channels // groups == inputs,
        f"input is {input} ({input_layout}) and filter is {filter} ({filter_layout}); with "
        f"{groups} groups the filter needs {channels // groups} input channels, not {inputs}",
    )
    check.that(
        outputs % groups == 0,
        f"filter is {filter} ({filter_layout}): {outputs} output channels do not divide into "
        f"{groups} groups",
    )
    check.shape("bias", bias, (outputs,))
    spatial = tuple(
        # Python's floor division is the floor of steps 16.10 and 16.11 below zero too.
        (size - ((taps - 1) * dilation + 1) + begin + end) // stride + 1
        for size, taps, begin, end, stride, dilation in (
            (height, rows, padding[0], padding[1], strides[0], dilations[0]),
            (width, columns, padding[2], padding[3], strides[1], dilations[1]),
        )
    )
    check.dimensions(
        spatial, f"input {input} and filter {filter} give an output of height and width"
    )
    begin, end = padding[::2], padding[1::2]
    padded = [sum(sizes) for sizes in zip((height, width), begin, end, strict=True)]
    check.dimensions(padded, f"input is {input}, padding {list(padding)}: the padded extents")
    check.dimensions(
        [(t - 1) * d + 1 for t, d in zip((rows, columns), dilations, strict=True)],
        f"filter is {filter}, dilations {list(dilations)}: the dilated extents",
    )
    shape = arrange((n, outputs, *spatial), "nchw", input_layout)
    normal = {"padding": padding, "strides": strides, "dilations": dilations}
    return Inferred((MLOperandDescriptor(input.data_type, shape),), normal)


conv2d.lowers_to(Kernel("conv"))


@operator("§8.9.11", **_LIMITS)
def conv_transpose2d(
    check: Check,
    input: Operand,
    filter: Operand,
    *,
    padding: SequenceOf(U32) = None,
    strides: SequenceOf(U32) = None,
    dilations: SequenceOf(U32) = None,
    output_padding: SequenceOf(U32) = None,
    output_sizes: SequenceOf(U32) = None,
    groups: U32 = 1,
    input_layout: InputLayout = "nchw",
    filter_layout: ConvTranspose2dFilterLayout = "iohw",
    bias: Operand = None,
):
    """Two-dimensional transposed convolution of a 4-D input with a 4-D filter.

    ``padding`` ([top, bottom, left, right]) is cut off the output. ``output_sizes`` ([height,
    width]) picks one of the sizes that a convolution would have mapped to the input's;
    without it ``output_padding`` is added to the smallest one.
    """
    check.same_type(input=input, filter=filter, bias=bias)
    padding = _numbers(check, "padding", padding, (0, 0, 0, 0))
    strides = _positive(check, "strides", strides)
    dilations = _positive(check, "dilations", dilations)
    output_padding = _numbers(check, "output_padding", output_padding, (0, 0))
    if output_sizes is not None:
        _numbers(check, "output_sizes", output_sizes, (0, 0))
    else:
        # spec: convTranspose2d, step 18: only without outputSizes
        check.that(
            all(p < s for p, s in zip(output_padding, strides, strict=True)),
            f"output_padding {list(output_padding)} has to be below strides {list(strides)}",
        )
    check.that(groups != 0, "groups is 0; at least 1 is expected")
    n, channels, height, width = arrange(input.shape, input_layout, "nchw")
    inputs, per_group, rows, columns = arrange(filter.shape, filter_layout, "iohw")
    check.that(
        channels == inputs,
        f"input is {input} ({input_layout}) and filter is {filter} ({filter_layout}); {channels} "
        f"input channels are expected in the filter, not {inputs}",
    )
    # The draft has no such check and its tests build one channel in three groups: with fewer
    # channels than groups, no group has one and the result is the bias.
    check.that(
        channels % groups == 0 or channels < groups,
        f"input is {input} ({input_layout}): its {channels} channels do not divide into "
        f"{groups} groups",
    )
    outputs = per_group * groups
    check.dimensions([outputs], f"{per_group} · {groups} output channels")
    check.shape("bias", bias, (outputs,))
    smallest = tuple(
        (size - 1) * stride + (taps - 1) * dilation + 1 - begin - end
        for size, taps, begin, end, stride, dilation in (
            (height, rows, padding[0], padding[1], strides[0], dilations[0]),
            (width, columns, padding[2], padding[3], strides[1], dilations[1]),
        )
    )
    if output_sizes is not None:
        check.that(
            all(
                low <= size < low + stride
                for low, size, stride in zip(smallest, output_sizes, strides, strict=True)
            ),
            f"output_sizes {list(output_sizes)}: at least {list(smallest)} and less than one "
            f"stride {list(strides)} more is expected",
        )
        spatial = output_sizes
    else:
        spatial = tuple(s + p for s, p in zip(smallest, output_padding, strict=True))
    check.dimensions(
        spatial, f"input {input} and filter {filter} give an output of height and width"
    )
    check.dimensions(
        [sum(sizes) for sizes in zip(spatial, padding[::2], padding[1::2], strict=True)],
        f"input is {input}, filter {filter}, strides {list(strides)}, dilations {list(dilations)}: "
        f"the extents before the padding {list(padding)} is cut off",
    )
    shape = arrange((n, outputs, *spatial), "nchw", input_layout)
    normal = {
        "padding": padding,
        "strides": strides,
        "dilations": dilations,
        "output_padding": output_padding,
    }
    return Inferred((MLOperandDescriptor(input.data_type, shape),), normal)


conv_transpose2d.lowers_to(Kernel("conv"))


# -- references: unfolded input times filter through BLAS


@conv2d.reference
def _(out, input, filter, padding, strides, dilations, groups, input_layout, filter_layout, bias):
    x = input.transpose(arrange(range(4), input_layout, "nchw"))
    w = filter.transpose(arrange(range(4), filter_layout, "oihw"))
    n, channels, height, width = x.shape
    outputs, inputs, rows, columns = w.shape
    _, _, out_height, out_width = arrange(out.shape, input_layout, "nchw")
    if any(padding):
        top, bottom, left, right = padding
        padded = np.zeros((n, channels, height + top + bottom, width + left + right), np.float32)
        padded[:, :, top : top + height, left : left + width] = x
        x = padded
    sn, sc, sh, sw = x.strides
    # [batch, group, channel, tap row, tap column, output row, output column], without a copy
    windows = as_strided(
        x,
        (n, groups, inputs, rows, columns, out_height, out_width),
        (
            sn, sc * inputs, sc,
            sh * dilations[0], sw * dilations[1], sh * strides[0], sw * strides[1],
        ),
        writeable=False,
    )
    result = np.empty((n, groups, outputs // groups, out_height, out_width), np.float32)
    if inputs == 1:
        taps = w.reshape(groups, -1, rows, columns)[..., None, None]
        result[...] = 0
        for row in range(rows):
            for column in range(columns):
                result += windows[:, :, :, row, column] * taps[:, :, row, column]
    else:
        matrix = np.ascontiguousarray(w).reshape(groups, outputs // groups, -1)
        for image, some in _portions(windows):
            part = windows[image, :, :, :, :, some]
            unfolded = part.reshape(groups, matrix.shape[2], -1)
            product = np.matmul(matrix, unfolded)
            result[image, :, :, some] = product.reshape(*product.shape[:2], -1, out_width)
    return _finish(result, bias, input_layout)


def _portions(windows: np.ndarray) -> Iterator[tuple[int, slice]]:
    """(image, output rows) parts of a bounded size when unfolded."""
    n, rows = windows.shape[0], windows.shape[5]
    row_bytes = windows[0].size // rows * 4
    step = max(1, min(rows, _UNFOLDED_BYTES // row_bytes))
    for image in range(n):
        for first in range(0, rows, step):
            yield image, slice(first, first + step)


@conv_transpose2d.reference
def _(
    out, input, filter, padding, strides, dilations, output_padding, output_sizes, groups,
    input_layout, filter_layout, bias,
):
    x = input.transpose(arrange(range(4), input_layout, "nchw"))
    w = filter.transpose(arrange(range(4), filter_layout, "iohw"))
    n, channels, height, width = x.shape
    _, per_group, rows, columns = w.shape
    _, _, out_height, out_width = arrange(out.shape, input_layout, "nchw")
    top, _, left, _ = padding
    (sh, sw), (dh, dw) = strides, dilations
    # Rows and columns past the last tap are there for the output padding.
    canvas = np.zeros(
        (
            n, groups, per_group,
            max((height - 1) * sh + (rows - 1) * dh + 1, top + out_height),
            max((width - 1) * sw + (columns - 1) * dw + 1, left + out_width),
        ),
        np.float32,
    )
    own = channels // groups
    x = np.ascontiguousarray(x[:, : groups * own]).reshape(n, groups, own, height * width)
    w = w[: groups * own].reshape(groups, own, per_group, rows, columns).transpose(3, 4, 0, 2, 1)
    w = np.ascontiguousarray(w)
    for row in range(rows):
        for column in range(columns):
            product = np.matmul(w[row, column], x)
            canvas[
                ...,
                row * dh : row * dh + (height - 1) * sh + 1 : sh,
                column * dw : column * dw + (width - 1) * sw + 1 : sw,
            ] += product.reshape(n, groups, per_group, height, width)
    result = canvas[..., top : top + out_height, left : left + out_width]
    return _finish(result, bias, input_layout)


def _finish(result: np.ndarray, bias: np.ndarray | None, layout: str) -> np.ndarray:
    """[batch, group, channel, height, width] plus bias, in the output's layout."""
    n, groups, per_group, height, width = result.shape
    result = result.reshape(n, groups * per_group, height, width)
    if bias is not None:
        result = result + bias[:, None, None]
    return result.transpose(arrange(range(4), "nchw", layout))

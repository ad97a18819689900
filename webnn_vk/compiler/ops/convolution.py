"""Two-dimensional convolution and transposed convolution."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ..types.data_types import FLOAT_TYPES, MLOperandDescriptor
from .arguments import U32, Enum, Operand, SequenceOf
from .lowering import Convolution
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
    """The items of ``sizes``, one for each letter of ``layout``, in the order of ``target``."""
    return tuple(sizes[layout.index(letter)] for letter in target)


def _other_layout(
    input: MLOperandDescriptor,
    input_layout: str,
    filter: MLOperandDescriptor,
    filter_layout: str,
    layouts: Enum,
    groups: int = 1,
) -> str:
    """A hint for the message: the layouts that fit, if the given ones don't."""

    def fits(input_layout: str, filter_layout: str) -> bool:
        channels = input.shape[input_layout.index("c")]
        return channels == filter.shape[filter_layout.index("i")] * groups

    if fits(input_layout, filter_layout):
        return ""
    found = [f'filter_layout="{layout}"' for layout in layouts.values
             if fits(input_layout, layout)]
    found += [f'input_layout="{layout}"' for layout in InputLayout.values
              if fits(layout, filter_layout)]
    return f"; {' or '.join(found)} would fit" if found else ""


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
    return convolved(
        check, input, filter, padding, strides, dilations, groups, input_layout, filter_layout,
        bias,
    )


def convolved(
    check: Check,
    input: MLOperandDescriptor,
    filter: MLOperandDescriptor,
    padding: tuple[int, ...] | None,
    strides: tuple[int, ...] | None,
    dilations: tuple[int, ...] | None,
    groups: int,
    input_layout: str,
    filter_layout: str,
    bias: MLOperandDescriptor | None,
) -> Inferred:
    """The result of a conv2d whose operands have valid data types."""
    padding = check.items("padding", padding, (0, 0, 0, 0))
    strides = check.positive("strides", strides)
    dilations = check.positive("dilations", dilations)
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
        f"{groups} groups the filter needs {channels // groups} input channels, not {inputs}"
        + _other_layout(input, input_layout, filter, filter_layout, Conv2dFilterLayout, groups),
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
    check.materialised(
        padded, n * channels, f"input is {input}, padding {list(padding)}: the padded extents"
    )
    check.dimensions(
        [(t - 1) * d + 1 for t, d in zip((rows, columns), dilations, strict=True)],
        f"filter is {filter}, dilations {list(dilations)}: the dilated extents",
    )
    shape = arrange((n, outputs, *spatial), "nchw", input_layout)
    return Inferred.like(input, shape, padding=padding, strides=strides, dilations=dilations)


conv2d.lowers_to(Convolution())


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
    width]) selects one of the sizes that a convolution would map to the input's size; without
    it ``output_padding`` is added to the smallest of these sizes.
    """
    check.same_type(input=input, filter=filter, bias=bias)
    padding = check.items("padding", padding, (0, 0, 0, 0))
    strides = check.positive("strides", strides)
    dilations = check.positive("dilations", dilations)
    output_padding = check.items("output_padding", output_padding, (0, 0))
    if output_sizes is not None:
        check.items("output_sizes", output_sizes, (0, 0))
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
        f"input channels are expected in the filter, not {inputs}"
        + _other_layout(input, input_layout, filter, filter_layout, ConvTranspose2dFilterLayout),
    )
    # The draft has no such check, and its tests build one channel in three groups: with fewer
    # channels than groups, no group has a channel and the result is the bias.
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
    check.materialised(
        [sum(sizes) for sizes in zip(spatial, padding[::2], padding[1::2], strict=True)],
        n * outputs,
        f"input is {input}, filter {filter}, strides {list(strides)}, dilations {list(dilations)}: "
        f"the extents before the padding {list(padding)} is cut off",
    )
    shape = arrange((n, outputs, *spatial), "nchw", input_layout)
    return Inferred.like(
        input, shape, padding=padding, strides=strides, dilations=dilations,
        output_padding=output_padding,
    )


conv_transpose2d.lowers_to(Convolution(transposed=True))


# -- references: unfolded input times filter by BLAS. Padding and dilation are never materialised:
# their extents may be billions although input, filter and output are small.


def valid_range(
    offset: int, stride: int, before: int, size: int, count: int
) -> tuple[slice, slice] | None:
    """The range of o below ``count`` for which o · stride + offset − before is in 0 … size − 1,
    and the range of these positions; None if there is no such o."""
    first = max(0, -((offset - before) // stride))
    end = min(count, (size - 1 + before - offset) // stride + 1)
    if first >= end:
        return None
    start = first * stride + offset - before
    return slice(first, end), slice(start, start + (end - first - 1) * stride + 1, stride)


@conv2d.reference
def _(out, input, filter, padding, strides, dilations, groups, input_layout, filter_layout, bias):
    x = input.transpose(arrange(range(4), input_layout, "nchw"))
    w = filter.transpose(arrange(range(4), filter_layout, "oihw"))
    n, _, height, width = x.shape
    outputs, inputs, rows, columns = w.shape
    _, _, out_height, out_width = arrange(out.shape, input_layout, "nchw")
    across = [
        valid_range(column * dilations[1], strides[1], padding[2], width, out_width)
        for column in range(columns)
    ]

    def taps(band: slice) -> Iterator[tuple[int, int, tuple[slice, slice], tuple[slice, slice]]]:
        """(tap row, tap column, rows and columns of the output within the rows ``band`` that read
        the input through the tap, the positions read) of every tap that any of them uses."""
        top = padding[0] - band.start * strides[0]
        for row in range(rows):
            down = valid_range(row * dilations[0], strides[0], top, height, band.stop - band.start)
            if down is not None:
                for column, found in enumerate(across):
                    if found is not None:
                        yield row, column, (down[0], found[0]), (down[1], found[1])

    result = np.zeros((n, groups, outputs // groups, out_height, out_width), np.float32)
    if inputs == 1:
        x = np.ascontiguousarray(x)[:, :, None]
        weights = w.reshape(groups, -1, rows, columns)[..., None, None]
        for row, column, target, source in taps(slice(0, out_height)):
            result[..., *target] += x[..., *source] * weights[:, :, row, column]
        return _finish(result, bias, input_layout)
    # In double: BLAS sums the last rows of a matrix in another order than the other rows, and equal
    # filters have to give equal channels (a softmax of large numbers would show a difference).
    matrix = w.reshape(groups, outputs // groups, -1).astype(np.float64)
    if any(padding):
        x = np.ascontiguousarray(x)
    x = x.reshape(n, groups, inputs, height, width)
    plain = (rows, columns) == tuple(strides) == (1, 1) and not any(padding)
    step = _rows_at_a_time(matrix.shape[2] * groups * out_width, out_height)
    for image in range(n):
        for first in range(0, out_height, step):
            band = slice(first, min(first + step, out_height))
            if plain:
                unfolded = x[image, :, :, band]
            else:
                shape = (groups, inputs, rows, columns, band.stop - band.start, out_width)
                unfolded = (np.zeros if any(padding) else np.empty)(shape, np.float32)
                for row, column, target, source in taps(band):
                    unfolded[:, :, row, column, *target] = x[image, ..., *source]
            terms = unfolded.reshape(groups, matrix.shape[2], -1).astype(np.float64)
            product = np.matmul(matrix, terms)
            result[image, :, :, band] = product.reshape(*product.shape[:2], -1, out_width)
    return _finish(result, bias, input_layout)


def _rows_at_a_time(row_size: int, rows: int) -> int:
    """The number of output rows to unfold at a time, bounded by the size of the unfolded input."""
    return max(1, min(rows, _UNFOLDED_BYTES // (8 * row_size)))


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
    result = np.zeros((n, groups, per_group, out_height, out_width), np.float32)
    depth = channels // groups  # channels of a group
    x = np.ascontiguousarray(x[:, : groups * depth]).reshape(n, groups, depth, height * width)
    w = w[: groups * depth].reshape(groups, depth, per_group, rows, columns)
    w = np.ascontiguousarray(w.transpose(3, 4, 0, 2, 1))
    for row in range(rows):
        down = valid_range(row * dilations[0], strides[0], padding[0], out_height, height)
        for column in range(columns):
            across = valid_range(column * dilations[1], strides[1], padding[2], out_width, width)
            if down is not None and across is not None:
                product = np.matmul(w[row, column], x)
                product = product.reshape(n, groups, per_group, height, width)
                result[..., down[1], across[1]] += product[..., down[0], across[0]]
    return _finish(result, bias, input_layout)


def _finish(result: np.ndarray, bias: np.ndarray | None, layout: str) -> np.ndarray:
    """[batch, group, channel, height, width] plus bias, in the output's layout."""
    n, groups, per_group, height, width = result.shape
    result = result.reshape(n, groups * per_group, height, width)
    if bias is not None:
        result = result + bias[:, None, None]
    return result.transpose(arrange(range(4), "nchw", layout))

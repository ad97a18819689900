"""Matrix products and convolutions."""

from __future__ import annotations

from collections.abc import Sequence

from .writer import Inexpressible, Tensor, Writer, rule


@rule("matmul")
def matmul(w: Writer, a: Tensor, b: Tensor) -> Tensor:
    return w.op("MatMul", a, b, shape=w.result.shape)


@rule("gemm")
def gemm(
    w: Writer, a: Tensor, b: Tensor, c: Tensor | None, alpha: float, beta: float,
    a_transpose: bool, b_transpose: bool,
) -> Tensor:
    return w.op(
        "Gemm", a, b, c, shape=w.result.shape, alpha=float(alpha),
        beta=float(beta) if c is not None else 1.0, transA=int(a_transpose),
        transB=int(b_transpose),
    )


def _pads(padding: Sequence[int]) -> list[int]:
    """[top, bottom, left, right] in ONNX's order."""
    top, bottom, left, right = padding
    return [top, left, bottom, right]


@rule("conv2d")
def conv2d(
    w: Writer, input: Tensor, filter: Tensor, bias: Tensor | None, padding: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int], groups: int, input_layout: str,
    filter_layout: str,
) -> Tensor:
    weight = w.rearrange(filter, filter_layout, "oihw")
    shape = [w.result.shape[input_layout.index(letter)] for letter in "nchw"]
    return w.nchw(input_layout, input, lambda x: w.op(
        "Conv", x, weight, bias, shape=shape, kernel_shape=weight.shape[2:],
        pads=_pads(padding), strides=list(strides), dilations=list(dilations), group=groups,
    ))


@rule("conv_transpose2d")
def conv_transpose2d(
    w: Writer, input: Tensor, filter: Tensor, bias: Tensor | None, padding: Sequence[int],
    strides: Sequence[int], dilations: Sequence[int], groups: int, input_layout: str,
    filter_layout: str,
) -> Tensor:
    weight = w.rearrange(filter, filter_layout, "iohw")
    if weight.shape[0] % groups:
        raise Inexpressible(
            f"{weight.shape[0]} input channels in {groups} groups: ConvTranspose needs one a group"
        )
    shape = [w.result.shape[input_layout.index(letter)] for letter in "nchw"]
    sizes = [input.shape[input_layout.index(letter)] for letter in "hw"]
    pads = _pads(padding)
    # The elements beyond the smallest output, requested by output_padding or by output_sizes.
    beyond = [
        shape[2 + i]
        - ((sizes[i] - 1) * strides[i] + (weight.shape[2 + i] - 1) * dilations[i] + 1
           - pads[i] - pads[2 + i])
        for i in range(2)
    ]
    return w.nchw(input_layout, input, lambda x: w.op(
        "ConvTranspose", x, weight, bias, shape=shape, kernel_shape=weight.shape[2:],
        pads=pads, strides=list(strides), dilations=list(dilations), group=groups,
        output_padding=beyond,
    ))

"""ONNX Runtime's operators on images whose channels are in the last dimension."""

from __future__ import annotations

from typing import Any

from webnn_vk.api.builder import MLOperand

from ..context import NodeContext
from ..records import MICROSOFT, onnx_operator
from ..values import Tensor
from .convolution import fused_conv
from .pooling import max_pool
from .quantized import channels_first, channels_to_end, qlinear_conv


def _moved(c: NodeContext, x: Tensor) -> Tensor:
    return c.typed(channels_first(c, x.operand), x.type)


@onnx_operator("NhwcConv", "NhwcFusedConv", domain=MICROSOFT)
def nhwc_conv(
    c: NodeContext, x: Tensor, w: Tensor, bias: Tensor | None = None, z: Tensor | None = None, *,
    activation: str = "", activation_params: list[float] | None = None, auto_pad: str = "NOTSET",
    dilations: list[int] | None = None, group: int = 1, kernel_shape: list[int] | None = None,
    pads: list[int] | None = None, strides: list[int] | None = None,
) -> MLOperand:
    result = fused_conv(
        c, _moved(c, x), _moved(c, w), bias, None if z is None else _moved(c, z),
        activation=activation, activation_params=activation_params, auto_pad=auto_pad,
        dilations=dilations, group=group, pads=pads, strides=strides,
    )
    return channels_to_end(c, result)


@onnx_operator("NhwcMaxPool", domain=MICROSOFT)
def nhwc_max_pool(
    c: NodeContext, x: Tensor, *, kernel_shape: list[int], auto_pad: str = "NOTSET",
    ceil_mode: int = 0, dilations: list[int] | None = None, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    result: Any = max_pool(
        c, _moved(c, x), kernel_shape=kernel_shape, auto_pad=auto_pad, ceil_mode=ceil_mode,
        dilations=dilations, pads=pads, strides=strides,
    )
    pooled = result[0] if isinstance(result, (list, tuple)) else result
    return channels_to_end(c, pooled)


@onnx_operator("QLinearConv", domain=MICROSOFT)
def qlinear_conv_anywhere(
    c: NodeContext, x: Tensor, x_scale: Tensor, x_zero: Tensor, w: Tensor, w_scale: Tensor,
    w_zero: Tensor, y_scale: Tensor, y_zero: Tensor, bias: Tensor | None = None, *,
    auto_pad: str = "NOTSET", channels_last: int = 0, dilations: list[int] | None = None,
    group: int = 1, kernel_shape: list[int] | None = None, pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> MLOperand:
    result = qlinear_conv(
        c, _moved(c, x) if channels_last else x, x_scale, x_zero, w, w_scale, w_zero, y_scale,
        y_zero, bias, auto_pad=auto_pad, dilations=dilations, group=group, pads=pads,
        strides=strides,
    )
    return channels_to_end(c, result) if channels_last else result

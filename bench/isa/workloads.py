"""The workloads that peers are captured on, under the names of their folders: our graph of each,
and the dispatches of our program for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import webnn_vk
from webnn_vk.compiler.program import DeviceSegment, DispatchStep, Program

from ..models import classic, mobilenet_v2


def _outputs(describe: classic.Describe) -> Callable[[Any], Any]:
    def build(context: Any) -> Any:
        builder = webnn_vk.MLGraphBuilder(context)
        return builder.build(describe(builder))

    return build


#: Name → what ends with `MLGraphBuilder.build` on the context that it is given.
WORKLOADS: Mapping[str, Callable[[Any], Any]] = {
    "matmul_512": _outputs(classic.matmul(512)),
    "matmul_1024": _outputs(classic.matmul(1024)),
    "conv3x3_56x56_64_64": _outputs(classic.convolution(64, 56, 64, 3)),
    "conv1x1_28x28_128_512": _outputs(classic.convolution(128, 28, 512, 1)),
    "dwconv3x3_112x112_32": _outputs(classic.convolution(32, 112, 32, 3, 32)),
    "layernorm_128x768": _outputs(classic.layer_norm),
    "softmax_12x128x128": _outputs(classic.softmax),
    "add_relu_chain_1m": _outputs(classic.chain),
    "mobilenet_v2_224": mobilenet_v2.build,
    "bert_2l_128": _outputs(classic.bert(2)),
    "resnet50_v1_224": _outputs(classic.resnet50),
}


def steps(program: Program) -> list[DispatchStep]:
    """The dispatches of a run."""
    return [
        step
        for segment in program.segments if isinstance(segment, DeviceSegment)
        for step in segment.steps if isinstance(step, DispatchStep)
    ]

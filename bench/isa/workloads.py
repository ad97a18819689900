"""The workloads that peers are captured on, under the names of their folders: our graph of each,
its products in order, and how our program for a chip computes it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import webnn_vk
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.program import DeviceSegment, DispatchStep, Program

from ..models import classic, mobilenet_v2
from .bound import Layer, winograd


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


def layers(graph: Graph) -> list[Layer]:
    """The products of a graph as described, in order."""
    found: list[Layer] = []
    # The products that a value depends on.
    before: dict[Any, frozenset[int]] = {}
    for node in graph.nodes:
        needs = frozenset[int]().union(*(before.get(v, frozenset()) for v in node.inputs))
        name, out = node.operator.name, math.prod(node.results[0].shape)
        inner, by_tiles = 0, ()
        if name == "conv2d":
            kernel, shape = node.operands["filter"].shape, node.results[0].shape
            inner = math.prod(kernel[1:])
            if kernel[2:] == (3, 3) and kernel[1] > 1 and set(node.arguments["strides"]) == {1}:
                by_tiles = winograd(kernel[1], *shape[1:])
        elif name in ("matmul", "gemm"):
            a = node.operands["a"].shape
            inner = a[-2] if node.arguments.get("a_transpose") else a[-1]
        if inner:
            needs |= {len(found)}
            found.append(Layer(out * inner, out, needs - {len(found)}, by_tiles))
        before |= {value: needs for value in node.outputs}
    return found


def elements(graph: Graph) -> int:
    """For a graph without products the number of elements of its first input, else 0."""
    if layers(graph):
        return 0
    return math.prod(next(iter(graph.inputs.values())).shape)


def steps(program: Program) -> list[DispatchStep]:
    """The dispatches of a run."""
    return [
        step
        for segment in program.segments if isinstance(segment, DeviceSegment)
        for step in segment.steps if isinstance(step, DispatchStep)
    ]


#: Kernels that compute a product's multiply-adds. The ``flops`` of other kernels are other
#: arithmetic.
_PRODUCTS = ("matmul", "matvec", "conv", "attention")
#: The name of a dispatch of the products between Winograd's transforms.
_WINOGRAD = "winograd_product"


def multiply_adds(dispatches: Sequence[DispatchStep], products: Sequence[Layer]) -> list[int]:
    """The multiply-adds of each dispatch for a workload's products; those of Winograd convolutions
    as many as that algorithm takes. The ``flops`` of a product include operators fused into it, so
    the other multiply-adds are divided in proportion to ``flops``. ValueError where a Winograd
    convolution is none of the products."""
    left, counts = list(products), {}
    for n, step in enumerate(dispatches):
        if step.kernel == _WINOGRAD:
            # "4x4 …" are the outputs of a tile. Edges of tiles count among its ``flops``.
            side = int(step.variant.partition("x")[0]) + 2
            fitting = [
                (count, number) for number, layer in enumerate(left)
                if 0 < (count := dict(layer.winograd).get(side, 0)) <= step.flops / 2
            ]
            if not fitting:
                raise ValueError(f"{step.variant} of {step.flops} operations is none of {left}")
            counts[n], number = max(fitting)
            del left[number]
    shares = [
        step.flops if n not in counts and step.spec.template.startswith(_PRODUCTS) else 0
        for n, step in enumerate(dispatches)
    ]
    total, whole = sum(layer.multiply_adds for layer in left), sum(shares)
    return [
        counts.get(n, round(total * share / whole) if whole else 0)
        for n, share in enumerate(shares)
    ]

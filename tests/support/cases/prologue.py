"""Kernels that compute their operand where they load it: nodes for tests of plans and kernels."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from webnn_vk.compiler.ir import Emitter, Graph, Value
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.absorb import absorb
from webnn_vk.compiler.kernels.fusion import fuse
from webnn_vk.compiler.kernels.lower import kernelize
from webnn_vk.compiler.types.data_types import MLOperandDescriptor
from webnn_vk.driver.device_profile import DeviceProfile


class Made:
    """A graph that becomes one kernel, with the arrays of its inputs."""

    def __init__(self, data_type: str, build: Callable[[Made], Value]) -> None:
        self.data_type = data_type
        self.rng = np.random.default_rng(0)
        self.emit = Emitter()
        self.arrays: dict[Value, np.ndarray] = {}
        self.output = build(self)

    def operand(self, *shape: int, data_type: str = "") -> Value:
        kind = data_type or self.data_type
        value = Value(MLOperandDescriptor(kind, shape), name=f"i{len(self.arrays)}")
        low, high = (0, 2**32) if kind == "uint32" else (-1, 1)
        self.arrays[value] = self.rng.uniform(low, high, shape).astype(kind)
        return value


def prologued(made: Made, profile: DeviceProfile) -> KernelNode:
    """The one kernel."""
    inputs = {value.name: value for value in made.arrays}
    graph = Graph(inputs, {"y": made.output}, tuple(made.emit.nodes))
    done = absorb(fuse(kernelize(graph), profile))
    done.verify()
    (node,) = done.nodes
    assert isinstance(node, KernelNode)
    return node


def _mask(g: Made) -> Value:
    scores = g.emit.linear(g.operand(2, 3, 5, 16), alpha=0.25)
    return g.emit.softmax(g.emit.add(scores, g.operand(2, 1, 1, 16)), 3)


def _columns(g: Made) -> Value:
    return g.emit.softmax(g.emit.sub(g.operand(3, 7, 5), g.operand(7, 1)), 1)


def _residual(g: Made) -> Value:
    x = g.emit.add(g.operand(6, 5, 24), g.operand(6, 5, 24))
    y = g.emit.layer_normalization(
        x, scale=g.operand(24), bias=g.operand(24), axes=[2]
    )
    return g.emit.relu(y)


def _odd_norm(g: Made) -> Value:
    x = g.emit.mul(g.operand(4, 7, 9), g.operand(7, 1))
    return g.emit.layer_normalization(x, axes=[1, 2])


def _instances(g: Made) -> Value:
    x = g.emit.clamp(g.emit.add(g.operand(2, 3, 4, 8), g.operand(3, 1, 1)), min_value=-0.5)
    return g.emit.instance_normalization(x)


def _distance(g: Made) -> Value:
    x = g.emit.sub(g.operand(3, 5, 64), g.operand(3, 1, 64))
    return g.emit.reduce_l2(x, axes=[2])


def _leading(g: Made) -> Value:
    return g.emit.reduce_mean(g.emit.mul(g.operand(33, 6), g.operand(33, 1)), axes=[0])


def _logarithms(g: Made) -> Value:
    return g.emit.reduce_log_sum_exp(g.emit.linear(g.operand(5, 40), alpha=2.0), axes=[1])


def _position(g: Made) -> Value:
    return g.emit.arg_max(g.emit.mul(g.operand(9, 24), g.operand(24)), 1)


def _pixels(g: Made) -> Value:
    x = g.emit.relu(g.emit.add(g.operand(2, 3, 8, 7), g.operand(1, 3, 1, 1)))
    return g.emit.max_pool2d(x, window_dimensions=[3, 2], strides=[2, 2], padding=[1, 1, 0, 1])


def _all_pixels(g: Made) -> Value:
    x = g.emit.add(g.operand(2, 5, 6, 8), g.operand(8))
    return g.emit.average_pool2d(x, layout="nhwc")


def _halves(g: Made) -> Value:
    left, right = g.emit.split(g.operand(5, 24), 2, axis=1)
    return g.emit.softmax(g.emit.mul(left, right), 1)


def _turned(g: Made) -> Value:
    x = g.emit.sub(g.operand(6, 5), g.emit.transpose(g.operand(5, 6)))
    return g.emit.reduce_sum_square(x, axes=[0])


def _upward(g: Made) -> Value:
    x = g.emit.sub(g.operand(6, 16), g.emit.reverse(g.operand(6, 16), axes=[0]))
    return g.emit.layer_normalization(x, axes=[1])


def cases(*builds: Callable[[Made], Value]) -> dict[str, Callable[[str], Made]]:
    return {
        build.__name__[1:]: lambda data_type, build=build: Made(data_type, build)
        for build in builds
    }


CASES = cases(
    _mask, _columns, _residual, _odd_norm, _instances, _distance, _leading, _logarithms, _position,
    _pixels, _all_pixels,
)
#: The operand's computation, in another layout.
FAR = cases(_halves, _turned, _upward)

"""The models with the kernels to judge, as graphs: built without a device, never run."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

import numpy as np

import webnn_vk
from webnn_vk.api.builder import apply_operator
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.program import Program, Target, compile_program
from webnn_vk.driver.device_profile import DeviceProfile

from ..models import classic, mobilenet_v2, recurrent


@functools.cache
def _model() -> Any:
    from webnn_vk.tools.demo import read_model

    return read_model()


def _minilm(batch: int, length: int) -> Callable[[Any], Any]:
    def build(context: Any) -> Any:
        from webnn_vk.examples.sentence_encoder import Weights, build_encoder

        weights = Weights(context, _model())
        weights.upload()
        return build_encoder(weights, batch, length)

    return build


#: Rows, columns and inner dimension of the products.
PRODUCT = 1024


def _products(data_type: str) -> Callable[[Any], Any]:
    """Products with each of the four layouts of operands, on inputs (nothing is prepacked)."""

    def build(context: Any) -> Any:
        builder = webnn_vk.MLGraphBuilder(context)
        shape = {"data_type": data_type, "shape": [PRODUCT, PRODUCT]}
        outputs = {}
        for ta, tb in itertools.product((False, True), repeat=2):
            name = f"{'t' if ta else 'n'}{'t' if tb else 'n'}"
            a, b = builder.input(f"a_{name}", shape), builder.input(f"b_{name}", shape)
            outputs[name] = builder.gemm(a, b, a_transpose=ta, b_transpose=tb, label=name)
        return builder.build(outputs)

    return build


def _convolutions(stride: int) -> Callable[[Any], Any]:
    """3×3 over 64 and 256 channels, in both layouts, with constant filters: with a stride of 2 as
    implicit products, with 1 by Winograd's transforms."""

    def build(context: Any) -> Any:
        builder = webnn_vk.MLGraphBuilder(context)
        outputs = {}
        for layout, (channels, side) in itertools.product(("nchw", "nhwc"), ((64, 56), (256, 14))):
            shape = {"n": 8, "c": channels, "h": side * stride, "w": side * stride}
            name = f"{layout}_{channels}"
            x = builder.input(name + "_x", {
                "data_type": "float32", "shape": [shape[dimension] for dimension in layout],
            })
            taps = np.full((channels, channels, 3, 3), 0.5, np.float32)
            outputs[name] = builder.conv2d(
                x, builder.constant(taps), padding=[1, 1, 1, 1], strides=[stride, stride],
                input_layout=layout, label=name,
            )
        return builder.build(outputs)

    return build


def _classic(describe: classic.Describe) -> Callable[[Any], Any]:
    def build(context: Any) -> Any:
        builder = webnn_vk.MLGraphBuilder(context)
        return builder.build(describe(builder))

    return build


def _attention(context: Any) -> Any:
    """Twelve heads of usual sizes over 512 keys: of a whole sequence, and of its next token."""
    builder = webnn_vk.MLGraphBuilder(context)
    outputs = {}
    for data_type, size, rows in itertools.product(("float32", "float16"), (64, 128), (1, 512)):
        name = f"{data_type}_{size}_{rows}"
        query, keys, values = (
            builder.input(f"{name}_{what}", {"data_type": data_type, "shape": [12, steps, size]})
            for what, steps in (("q", rows), ("k", 512), ("v", 512))
        )
        scores = builder.matmul(query, builder.transpose(keys, permutation=[0, 2, 1]))
        weights = builder.softmax(builder.mul(scores, builder.constant(data_type, size**-0.5)), 2)
        outputs[name] = builder.matmul(weights, values, label=name)
    return builder.build(outputs)


def _token(context: Any) -> Any:
    """Products of a token by a Llama's layer, with floats and with blocks of 4 bits: of a row that
    is normalised first, with and without halves that are combined; and one of many elements."""
    builder = webnn_vk.MLGraphBuilder(context)
    call: Callable[..., Any] = apply_operator
    width, inner, outputs = 2048, 8192, {}
    for kind in ("float32", "float16", "int4"):
        data_type = kind if kind != "int4" else "float32"

        def product(
            x: Any, name: str, columns: int, kind: str = kind, data_type: str = data_type
        ) -> Any:
            rows = x.shape[1]
            if kind != "int4":
                shape = {"data_type": data_type, "shape": [columns, rows]}
                return builder.gemm(x, builder.input(f"{kind}_{name}", shape), b_transpose=True)
            words, scale = (
                builder.input(f"{kind}_{name}_{part}", {"data_type": t, "shape": [columns, n]})
                for part, t, n in (("b", "uint32", rows // 8), ("scale", "float32", rows // 32))
            )
            return call(builder, "block_matmul", x, words, scale, bits=4, zero_point=8.0)

        def normal(x: Any, name: str, kind: str = kind, data_type: str = data_type) -> Any:
            y = call(builder, "rms_normalization", x, [1], epsilon=1e-5)
            shape = {"data_type": data_type, "shape": [width]}
            return builder.mul(y, builder.input(f"{kind}_{name}", shape))

        x = builder.input(f"{kind}_x", {"data_type": data_type, "shape": [1, width]})
        outputs[f"{kind}_qkv"] = product(normal(x, "norm"), "qkv", 3072)
        gate, up = builder.split(product(normal(x, "norm2"), "gate_up", 2 * inner), 2, axis=1)
        y = builder.mul(call(builder, "swish", gate), up)
        outputs[f"{kind}_y"] = builder.add(x, product(y, "down", width))
    return builder.build(outputs)


#: Name → a function that calls `MLGraphBuilder.build` on a context.
GRAPHS: Mapping[str, Callable[[Any], Any]] = {
    "minilm_1x32": _minilm(1, 32),
    "minilm_8x64": _minilm(8, 64),
    "mobilenet_v2": mobilenet_v2.build,
    "resnet50": _classic(classic.resnet50),
    "bert": _classic(classic.bert(layers=2)),
    "recurrent": recurrent.build,
    "products_f32": _products("float32"),
    "products_f16": _products("float16"),
    "convolutions": _convolutions(2),
    "winograd": _convolutions(1),
    "attention": _attention,
    "token": _token,
}


def described(build: Callable[[Any], Any]) -> Graph:
    """The graph that ``build`` describes, not compiled."""
    with (
        webnn_vk.ml.create_context(accelerated=False).result() as context,
        # A model's last call is build(). Here it returns the graph instead of compiling it.
        mock.patch.object(
            webnn_vk.MLGraphBuilder, "build", lambda builder, outputs: builder._graph(outputs)
        ),
    ):
        return build(context)


def compiled(name: str, profile: DeviceProfile) -> Program:
    """The program of one of `GRAPHS` for a device."""
    return compile_program(described(GRAPHS[name]), Target(profile))[0]

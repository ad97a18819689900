"""Problems of every kernel family in many sizes and modes, for the library's plans.

They are planned, never run. The archive's modules are compiled with the specialisation constants of
these plans, so a family with a new constant, or a new way to choose one, needs a problem here
(`kernels.of_pack` names modules without a plan).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

import webnn_vk
from webnn_vk.api.builder import apply_operator
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.kernels import KernelNode
from webnn_vk.compiler.kernels.choose import fitting
from webnn_vk.compiler.kernels.family import solver_of
from webnn_vk.compiler.kernels.schedule import NOTHING_TUNED, Tuned, problem_class
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.driver.device_profile import DeviceProfile

from .kernels import Kernel, of_program, of_setup

#: The largest binding that every device supports. Larger products and copies are divided.
SMALLEST_BINDING = 1 << 27
#: Kernels that are planned with each of their schedules that fit the device's registers: those for
#: constant filters, which the problems don't have, products by cooperative matrices, which rules
#: don't choose for every device that has them, and softmax without subgroup operations.
UNCHOSEN = ("winograd", "winograd_tiled", "conv_wide", "matmul_coopmat", "group")


def plans(profile: DeviceProfile) -> list[Kernel]:
    """The distinct kernels of all problems on a device, of large ones also as if it bound no more
    than it has to, and of those that few rules choose (`UNCHOSEN`)."""
    if "integer_dot_product" in profile.features:
        # The archive has integer products for all devices with the instruction, fast or slow.
        fast = profile.features | {"integer_dot_product_accelerated"}
        profile = profile.replace(features=fast)
    cut = profile.replace(max_storage_buffer_range=SMALLEST_BINDING)
    # The archive has the kernels that read texels for every device.
    texels = cut.replace(
        features=cut.features | {"texel_buffers"}, max_texel_buffer_elements=SMALLEST_BINDING
    )
    found: dict[Any, Kernel] = {}

    def add(name: str, graph: Graph, device: DeviceProfile, tuned: Tuned = NOTHING_TUNED) -> None:
        program, _ = compile_program(graph, Target(device, skip=("fold", "fuse"), tuned=tuned))
        for kernel in (*of_program(program), *of_setup(program)):
            key = kernel.spec, kernel.constants
            found.setdefault(key, Kernel(*key, name))

    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        for problems, device in ((_problems, profile), (_large, cut)):
            for name, graph in _graphs(context, problems):
                add(name, graph, device)
        for problems, device in ((_unchosen, texels), (_products, profile), (_softmax, profile)):
            for name, graph in _graphs(context, problems):
                for tuned in _schedules(graph, device):
                    add(name, graph, device, tuned)
    return list(found.values())


def _schedules(graph: Graph, profile: DeviceProfile) -> Iterator[Tuned]:
    """For each schedule of `UNCHOSEN` that could compute the graph's only node, what has it
    chosen."""
    (node,) = map(KernelNode.of, graph.nodes)
    solver, problem = solver_of(node)
    for schedule in fitting(solver.candidates(problem, profile), problem, profile):
        if schedule.kernel in UNCHOSEN:
            yield {(solver.name, problem_class(problem)): schedule}


def _graphs(context: Any, problems: Any) -> Iterator[tuple[str, Graph]]:
    for data_type in ("float32", "float16"):
        # Each problem has a separate graph: identical ones would be merged.
        for name in problems(webnn_vk.MLGraphBuilder(context), data_type):
            builder = webnn_vk.MLGraphBuilder(context)
            made = problems(builder, data_type)[name]()
            outputs = made if isinstance(made, list) else [made]
            donated = {"x0": "0"} if name.endswith("in place") else None
            graph = builder._graph({str(i): out for i, out in enumerate(outputs)}, donated)
            yield f"{name} {data_type}", graph


def _products(b: Any, data_type: str) -> Mapping[str, Any]:
    """As `_problems`: products that cooperative matrices may compute."""
    x, y, c = (b.input(name, {"data_type": data_type, "shape": [512, 512]}) for name in "xyc")
    return {
        "product": lambda: b.matmul(x, y),
        "product of transposes": lambda: b.gemm(x, y, c=c, a_transpose=True, b_transpose=True),
    }


def _softmax(b: Any, data_type: str) -> Mapping[str, Any]:
    """As `_problems`: rows that a workgroup keeps in registers."""
    x = b.input("x", {"data_type": data_type, "shape": [64, 128]})
    return {"softmax of rows that are kept": lambda: b.softmax(x, 1)}


def _problems(b: Any, data_type: str) -> Mapping[str, Any]:
    """Name → a function that adds the problem to the builder and returns its output or outputs."""
    count = iter(range(1000))

    def x(*shape: int, of: str = data_type) -> Any:
        return b.input(f"x{next(count)}", {"data_type": of, "shape": list(shape)})

    def attention(heads: int, rows: int, size: int) -> Any:
        query, keys, values = x(heads, rows, size), x(heads, 512, size), x(heads, 512, size)
        turned = b.transpose(keys, permutation=[0, 2, 1])
        return b.matmul(b.softmax(b.matmul(query, turned), 2), values)

    def blocks(bits: int, rows: int) -> Any:
        def made() -> Any:
            words, scale = x(2048, 32 * bits, of="uint32"), x(2048, 32, of="float16")
            return apply_operator(b, "block_matmul", x(rows, 1024), words, scale, bits=bits)

        return made

    def conv(c_in: int, c_out: int, size: int, side: int, transposed: bool = False, **more: Any):
        groups = more.get("groups", 1)
        last = more.pop("last", False)
        pad = [size // 2] * 4
        shape = (1, side, side, c_in) if last else (1, c_in, side, side)
        layout = {"input_layout": "nhwc"} if last else {}
        if transposed:
            w = x(c_in, c_out // groups, size, size)
            return b.conv_transpose2d(x(*shape), w, bias=x(c_out), padding=pad, **layout, **more)
        if last:
            w = x(c_out, size, size, c_in // groups)
            layout["filter_layout"] = "ohwi"
        else:
            w = x(c_out, c_in // groups, size, size)
        return b.conv2d(x(*shape), w, bias=x(c_out), padding=pad, **layout, **more)

    def recurrent(name: str, gates: int, **more: Any) -> Any:
        weights = x(1, gates * 64, 32), x(1, gates * 64, 64)
        return getattr(b, name)(x(16, 2, 32), *weights, 16, 64, **more)[0]

    def elements(name: str, *shapes: tuple[int, ...], of: str = data_type) -> Any:
        return lambda: getattr(b, name)(*(x(*shape, of=of) for shape in shapes))

    def quantize(name: str, of: str, small: tuple[int, ...]) -> Any:
        shape = (64, 96)
        if name == "quantize_linear":
            return lambda: b.quantize_linear(x(*shape), x(*small), x(*small, of=of))
        return lambda: b.dequantize_linear(x(*shape, of=of), x(*small), x(*small, of=of))

    def integers(size: int) -> Any:
        """Products of two dequantised tensors, as integers where the device has integer dot
        products."""
        scale, zero = np.ones((1, 1), data_type), np.zeros((1, 1), np.int8)
        weights = np.ones((size, size), np.int8)
        of_one = b.constant(scale), b.constant(zero)
        left = b.dequantize_linear(x(size, size, of="int8"), *of_one)
        return b.matmul(left, b.dequantize_linear(b.constant(weights), *of_one))

    problems = {
        "matmul of integers 64": lambda: integers(64),
        "matmul of integers 1024": lambda: integers(1024),
        "matmul 64": lambda: b.matmul(x(64, 64), x(64, 64)),
        "matmul 512": lambda: b.matmul(x(512, 512), x(512, 512)),
        "matmul 1024": lambda: b.matmul(x(1024, 1024), x(1024, 1024)),
        "matmul 12 × 128": lambda: b.matmul(x(12, 128, 64), x(12, 64, 128)),
        "gemm": lambda: b.gemm(x(512, 384), x(1536, 384), c=x(1536), b_transpose=True),
        "gemm a transposed": lambda: b.gemm(x(384, 512), x(384, 1536), a_transpose=True),
        "matmul in parts": lambda: b.matmul(x(64, 8192), x(8192, 64)),
        "gemm in parts": lambda: b.gemm(x(64, 8192), x(8192, 64), c=x(64)),
        "matrix × vector": lambda: b.matmul(x(4096, 4096), x(4096, 1)),
        "vector × matrix": lambda: b.matmul(x(1, 4096), x(4096, 4096)),
        "vector × odd matrix": lambda: b.gemm(x(1, 1001), x(1001, 333), c=x(333)),
        "conv 1×1": lambda: conv(128, 512, 1, 28),
        "conv 1×1 last": lambda: conv(128, 512, 1, 28, last=True),
        "conv 3×3": lambda: conv(64, 64, 3, 56),
        "conv 3×3 last": lambda: conv(64, 64, 3, 56, last=True),
        "conv 3×3 last, odd": lambda: conv(63, 64, 3, 56, last=True),
        "conv 3×3 strided": lambda: conv(64, 128, 3, 56, strides=[2, 2]),
        "conv 7×7": lambda: conv(3, 64, 7, 224, strides=[2, 2]),
        "conv 7×7 last": lambda: conv(3, 8, 7, 224, strides=[2, 2], last=True),
        "conv grouped": lambda: conv(64, 64, 3, 28, groups=8),
        "conv transposed": lambda: conv(64, 32, 2, 28, transposed=True, strides=[2, 2]),
        "conv transposed last": lambda: conv(
            64, 32, 4, 28, transposed=True, strides=[2, 2], last=True),
        "conv transposed last, in vectors": lambda: b.conv_transpose2d(
            x(1, 28, 28, 64), x(32, 4, 4, 64), bias=x(32), padding=[2] * 4, strides=[2, 2],
            input_layout="nhwc", filter_layout="ohwi"),
        "depthwise 3×3": lambda: conv(32, 32, 3, 112, groups=32),
        "depthwise 3×3 strided": lambda: conv(96, 96, 3, 112, groups=96, strides=[2, 2]),
        "depthwise 5×5": lambda: conv(96, 96, 5, 14, groups=96),
        "depthwise 3×3 last": lambda: conv(32, 32, 3, 112, groups=32, last=True),
        "layer norm": lambda: b.layer_normalization(
            x(128, 768), scale=x(768), bias=x(768), axes=[1]),
        "layer norm plain": lambda: b.layer_normalization(x(4, 16, 6), axes=[0, 2]),
        "layer norm short": lambda: b.layer_normalization(x(4096, 8), scale=x(8), axes=[1]),
        "instance norm": lambda: b.instance_normalization(
            x(1, 32, 56, 56), scale=x(32), bias=x(32)),
        "batch norm": lambda: b.batch_normalization(
            x(1, 64, 56, 56), x(64), x(64), scale=x(64), bias=x(64)),
        "batch norm last": lambda: b.batch_normalization(x(8, 256), x(256), x(256), axis=1),
        **{
            f"weights of {bits} bits, {rows}": blocks(bits, rows)
            for bits in (4, 8) for rows in (1, 4, 128)
        },
        "attention": lambda: attention(12, 128, 64),
        "attention, few": lambda: attention(12, 16, 64),
        "attention, many": lambda: attention(96, 512, 128),
        "attention, a token": lambda: attention(32, 1, 128),
        "softmax": lambda: b.softmax(x(12, 128, 128), 2),
        "softmax by subgroups": lambda: b.softmax(x(64, 512), 1),
        "softmax short": lambda: b.softmax(x(4096, 10), 1),
        "softmax long": lambda: b.softmax(x(4, 30000), 1),
        "pool": lambda: b.average_pool2d(x(1, 64, 56, 56), window_dimensions=[2, 2]),
        "pool global": lambda: b.max_pool2d(x(1, 1280, 7, 7)),
        "pool last": lambda: b.l2_pool2d(
            x(1, 56, 56, 64), window_dimensions=[3, 3], layout="nhwc"),
        "resample": lambda: b.resample2d(x(1, 64, 28, 28), sizes=[56, 56], mode="linear"),
        "resample last": lambda: b.resample2d(x(1, 28, 28, 64), sizes=[56, 56], axes=[1, 2]),
        "sum of rows": lambda: b.reduce_sum(x(1024, 1024), axes=[1]),
        "sum of columns": lambda: b.reduce_sum(x(1024, 1024), axes=[0]),
        "sum of all": lambda: b.reduce_sum(x(2048, 2048)),
        "sum of short rows": lambda: b.reduce_mean(x(65536, 4), axes=[1]),
        "sum of two axes": lambda: b.reduce_max(x(16, 32, 24, 8), axes=[0, 2]),
        "argmax": lambda: b.arg_max(x(64, 50257), 1),
        "argmin": lambda: b.arg_min(x(50257, 8), 1),
        "scan": lambda: b.cumulative_sum(x(64, 4096), 1),
        "scan of few": lambda: b.cumulative_sum(x(4096, 4), 1),
        "scan of one row": lambda: b.cumulative_sum(x(1 << 20), 0),
        "transpose": lambda: b.transpose(x(12, 64, 128), permutation=[0, 2, 1]),
        "slice": lambda: b.slice(x(64, 64), [1, 2], [50, 33]),
        "pad": lambda: b.pad(x(1, 8, 30, 30), [0, 0, 1, 1], [0, 0, 1, 1]),
        "pad reflected": lambda: b.pad(
            x(1, 8, 30, 30), [0, 0, 1, 1], [0, 0, 1, 1], mode="reflection"),
        "triangular": lambda: b.triangular(x(128, 128)),
        "gather": lambda: b.gather(x(30522, 384), x(8, 64, of="int32")),
        "gather elements": lambda: b.gather_elements(x(64, 64), x(64, 64, of="int32"), axis=1),
        "gather nd": lambda: b.gather_nd(x(64, 64, 8), x(32, 2, of="int64")),
        "scatter elements": lambda: b.scatter_elements(
            x(64, 64), x(16, 64, of="int32"), x(16, 64)),
        "scatter nd": lambda: b.scatter_nd(x(64, 64, 8), x(32, 2, of="int32"), x(32, 8)),
        "scatter elements in place": lambda: b.scatter_elements(
            x(64, 64), x(16, 64, of="int32"), x(16, 64)),
        "scatter nd in place": lambda: b.scatter_nd(
            x(64, 64, 8), x(32, 2, of="int32"), x(32, 8)),
        "lstm": lambda: recurrent("lstm", 4),
        "gru": lambda: recurrent("gru", 3),
        "gru, reset before": lambda: recurrent("gru", 3, reset_after=False),
        "relu": elements("relu", (1024, 1024)),
        "relu of odd": elements("relu", (33, 31)),
        "add": elements("add", (1024, 1024), (1024, 1024)),
        "add bias": elements("add", (512, 768), (768,)),
        "add channels": elements("add", (1, 64, 56, 56), (64, 1, 1)),
        "add scalar": elements("mul", (12, 128, 128), ()),
        "add odd": elements("add", (7, 1, 33), (5, 1)),
        "where": lambda: b.where(x(8, 1, 128, of="uint8"), x(8, 128, 128), x()),
        "quantize": quantize("quantize_linear", "uint8", (1, 1)),
        "quantize in blocks": quantize("quantize_linear", "int8", (64, 3)),
        "dequantize": quantize("dequantize_linear", "int8", (64, 1)),
        "dequantize in blocks": quantize("dequantize_linear", "uint8", (16, 3)),
    }
    for of in ("int32", "int64", "int8"):
        problems |= {
            f"abs {of}": elements("abs", (256, 256), of=of),
            f"add {of}": elements("add", (256, 256), (256,), of=of),
            f"max pool {of}": lambda of=of: b.max_pool2d(
                x(1, 8, 28, 28, of=of), window_dimensions=[2, 2]),
            f"max of {of}": lambda of=of: b.reduce_max(x(512, 300, of=of), axes=[1]),
            f"where {of}": lambda of=of: b.where(
                x(8, 64, of="uint8"), x(8, 64, of=of), x(64, of=of)),
        }
    return problems


def _large(b: Any, data_type: str) -> Mapping[str, Any]:
    """Problems with tensors larger than the smallest binding."""

    def x(name: str, *shape: int) -> Any:
        return b.input(name, {"data_type": data_type, "shape": list(shape)})

    return {
        "matmul in pieces": lambda: b.matmul(x("a", 64, 1 << 21), x("b", 1 << 21, 64)),
        "gemm in pieces": lambda: b.gemm(
            x("a", 1 << 21, 64), x("b", 64, 1 << 21), c=x("c", 64), a_transpose=True,
            b_transpose=True),
        "sum in pieces": lambda: b.reduce_sum(x("a", 1 << 27)),
    }


def _unchosen(b: Any, data_type: str) -> Mapping[str, Any]:
    """Convolutions with constant filters, which the kernels of `UNCHOSEN` transform and reorder."""

    def conv(c_in: int, size: int, side: int, last: bool = False, bias: bool = True) -> Any:
        x = [1, side, side, c_in] if last else [1, c_in, side, side]
        more = {"bias": b.input("c", {"data_type": data_type, "shape": [64]})} if bias else {}
        return b.conv2d(
            b.input("x", {"data_type": data_type, "shape": x}),
            b.constant(np.full((64, c_in, size, size), 0.5, data_type)),
            padding=[size // 2] * 4, input_layout="nhwc" if last else "nchw", **more,
        )

    problems: dict[str, Any] = {
        "conv 7×7 of a constant": lambda: conv(3, 7, 224),
        "conv 3×3 of a constant, 4 channels last": lambda: conv(4, 3, 56, True),
    }
    for bias in (False, True):
        problems |= {
            f"conv 3×3 of a constant{text}{', bias' * bias}": lambda given=given, bias=bias: conv(
                64, 3, *given, bias=bias)
            for text, given in (("", (56,)), (", odd", (55,)), (", last", (56, True)))
        }
    return problems

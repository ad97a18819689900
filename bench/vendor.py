"""Products, memory-bound operators and models beside PyTorch on the same NVIDIA GPU.

Both get the same operands, in the GPU's memory. A time is that of one of many runs which follow
each other without waiting, by the host's clock. PyTorch replays a CUDA graph, which costs the host
less than calling its operators. TF32 is off: float32 operands stay float32 on both sides.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import webnn_vk
from webnn_vk.support.dataclass import dataclass
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import open_context

from .models import classic, mobilenet_v2
from .table import show

#: Seconds of runs for each figure, and how often they are measured: the shortest counts.
_SECONDS, _ROUNDS = 0.15, 3
_BERT_LAYERS = 12
_DISTINCT = 1_000_003
#: The largest difference from PyTorch's result, by data type, relative to the largest element.
_TOLERANCE = {"float32": 1e-4, "float16": 2e-2}


@dataclass(frozen=True)
class Case:
    """One comparison. ``work``: floating-point operations of a run, or with ``of_memory`` the bytes
    that it has to read and write."""

    name: str
    data_type: str
    describe: classic.Describe
    work: float
    of_memory: bool = False


def _cases() -> list[Case]:
    cases = []
    for data_type, width in (("float16", 2), ("float32", 4)):
        cases += [
            Case(f"product {size}³", data_type, classic.matmul(size), 2.0 * size**3)
            for size in (1024, 2048, 4096, 8192)
        ]
        cases += [
            Case("one row × 8192²", data_type, _row(8192), 8192.0**2 * width, of_memory=True),
            Case("layer norm 16384 × 4096", data_type, _norm, 2.0 * 2**26 * width, of_memory=True),
            Case("softmax 16384 × 4096", data_type, _softmax, 2.0 * 2**26 * width, of_memory=True),
            Case("sum of two, 2²⁷", data_type, _sum, 3.0 * 2**27 * width, of_memory=True),
            Case("MobileNetV2", data_type, mobilenet_v2.describe,
                 2.0 * mobilenet_v2.multiply_adds()),
            Case("ResNet-50", data_type, classic.resnet50, 2 * 3.86e9),
            Case(f"BERT, {_BERT_LAYERS} layers, 128 tokens", data_type,
                 classic.bert(_BERT_LAYERS), 2.0 * classic.bert_multiply_adds(_BERT_LAYERS)),
        ]
    return cases


def _row(size: int) -> classic.Describe:
    def describe(b: Any) -> dict[str, Any]:
        x, weights = (b.input(name, {"data_type": "float32", "shape": [rows, size]})
                      for name, rows in (("x", 1), ("w", size)))
        return {"y": b.matmul(x, weights)}

    return describe


def _input(b: Any, name: str) -> Any:
    return b.input(name, {"data_type": "float32", "shape": [16384, 4096]})


def _norm(b: Any) -> dict[str, Any]:
    return {"y": b.layer_normalization(_input(b, "x"), axes=[1])}


def _softmax(b: Any) -> dict[str, Any]:
    return {"y": b.softmax(_input(b, "x"), 1)}


def _sum(b: Any) -> dict[str, Any]:
    x, z = (b.input(n, {"data_type": "float32", "shape": [32768, 4096]}) for n in ("x", "z"))
    return {"y": b.add(x, z)}


class Typed:
    """A builder whose float32 inputs and constants have another floating-point type."""

    def __init__(self, builder: Any, data_type: str) -> None:
        self._builder, self._type = builder, data_type

    def input(self, name: str, descriptor: Mapping[str, Any]) -> Any:
        return self._builder.input(name, {**descriptor, "data_type": self._type})

    def constant(self, value: Any, number: float | None = None) -> Any:
        if number is not None:
            return self._builder.constant(self._type, number)
        return self._builder.constant(value.astype(self._type))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._builder, name)


class Torch:
    """The methods of `MLGraphBuilder` that the cases call, computed by PyTorch on ``inputs``."""

    def __init__(self, torch: Any, data_type: str, inputs: Mapping[str, Any]) -> None:
        self._torch, self._f = torch, torch.nn.functional
        self._type, self._inputs = getattr(torch, data_type), inputs
        #: The constants on the GPU, in the order of the calls: later calls reuse them.
        self._constants: list[Any] = []
        self._next = 0

    def again(self) -> Torch:
        """The same builder, before its first call."""
        self._next = 0
        return self

    def input(self, name: str, descriptor: Mapping[str, Any]) -> Any:
        return self._inputs[name]

    def constant(self, value: Any, number: float | None = None) -> Any:
        if number is not None:
            return number
        if self._next == len(self._constants):
            self._constants.append(self._torch.from_numpy(value).to("cuda", self._type))
        self._next += 1
        return self._constants[self._next - 1]

    def conv2d(
        self, x: Any, w: Any, *, bias: Any, padding: Sequence[int], strides: Sequence[int] = (1, 1),
        groups: int = 1, label: str = "",
    ) -> Any:
        return self._f.conv2d(x, w, bias, list(strides), list(padding[::2]), groups=groups)

    def clamp(self, x: Any, min_value: float, max_value: float) -> Any:
        return self._torch.clamp(x, min_value, max_value)

    def max_pool2d(
        self, x: Any, window_dimensions: Sequence[int], padding: Sequence[int],
        strides: Sequence[int],
    ) -> Any:
        return self._f.max_pool2d(x, list(window_dimensions), list(strides), list(padding[::2]))

    def average_pool2d(self, x: Any) -> Any:
        return x.mean((2, 3), keepdim=True)

    def gemm(self, a: Any, b: Any, c: Any) -> Any:
        return self._torch.addmm(c, a, b)

    def layer_normalization(self, x: Any, axes: Sequence[int], scale: Any = None,
                            bias: Any = None) -> Any:
        return self._f.layer_norm(x, [x.shape[axis] for axis in axes], scale, bias)

    def softmax(self, x: Any, axis: int) -> Any:
        return self._torch.softmax(x, axis)

    def transpose(self, x: Any, permutation: Sequence[int]) -> Any:
        return x.permute(*permutation)

    def reshape(self, x: Any, shape: Sequence[int]) -> Any:
        return x.reshape(*shape)

    def gelu(self, x: Any) -> Any:
        return self._f.gelu(x)

    def relu(self, x: Any) -> Any:
        return self._torch.relu(x)

    def add(self, x: Any, y: Any, label: str = "") -> Any:
        return x + y

    def div(self, x: Any, y: Any) -> Any:
        return x / y

    def matmul(self, x: Any, y: Any) -> Any:
        return self._torch.matmul(x, y)


class Ours:
    """A case as a graph with tensors in the GPU's memory."""

    def __init__(self, context: Any, case: Case) -> None:
        self.context = context
        start = time.perf_counter()
        builder = webnn_vk.MLGraphBuilder(context)
        self.graph = builder.build(case.describe(Typed(builder, case.data_type))).result()
        self.built = time.perf_counter() - start
        random = np.random.default_rng(1)
        self.operands, self.inputs = {}, {}
        for name, descriptor in self.graph.inputs.items():
            scale = np.float32(np.sqrt(1 / descriptor.shape[-1]) if name == "w" else 1)
            # Large operands repeat a million numbers: more take seconds.
            some = random.standard_normal(_DISTINCT, np.float32) * scale
            value = np.resize(some, descriptor.shape)
            self.operands[name] = value.astype(case.data_type)
            self.inputs[name] = self._tensor(descriptor, writable=True)
            context.write_tensor(self.inputs[name], self.operands[name])
        self.outputs = {
            name: self._tensor(descriptor, readable=True)
            for name, descriptor in self.graph.outputs.items()
        }

    def _tensor(self, descriptor: Any, **usage: bool) -> Any:
        return self.context.create_tensor({
            "data_type": descriptor.data_type, "shape": descriptor.shape, **usage
        }).result()

    def run(self) -> None:
        self.context.dispatch(self.graph, self.inputs, self.outputs)

    def wait(self) -> None:
        self.context.fence().wait()

    def result(self) -> np.ndarray:
        (output,) = self.outputs.values()
        return np.asarray(self.context.read_tensor(output).result())

    def close(self) -> None:
        for held in (*self.inputs.values(), *self.outputs.values(), self.graph):
            held.destroy()


def seconds(run: Callable[[], Any], wait: Callable[[], Any]) -> float:
    """The shortest time of a run in rounds of as many runs as take `_SECONDS`."""
    for _ in range(3):
        run()
    wait()
    count, taken = 1, 0.0
    while taken < _SECONDS / 4:
        count *= 4
        taken = _once(run, wait, count)
    count = max(1, round(count * _SECONDS / taken))
    return min(_once(run, wait, count) for _ in range(_ROUNDS)) / count


def _once(run: Callable[[], Any], wait: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        run()
    wait()
    return time.perf_counter() - start


def beside(context: Any, torch: Any, case: Case) -> dict[str, Any]:
    """The figures of one case. `ToolError` where the results differ."""
    ours = Ours(context, case)
    try:
        found: dict[str, Any] = {
            "case": case.name, "data_type": case.data_type, "work": case.work,
            "of_memory": case.of_memory, "built": ours.built,
            "seconds": seconds(ours.run, ours.wait),
        }
        result = ours.result().astype(np.float32)
        inputs = {name: torch.from_numpy(value).to("cuda")
                  for name, value in ours.operands.items()}
        builder = Torch(torch, case.data_type, inputs)
        with torch.inference_mode():
            wanted, replay = _captured(torch, case, builder)
            found["torch_calls"] = seconds(
                lambda: case.describe(builder.again()), torch.cuda.synchronize
            )
            found["torch_graph"] = seconds(replay, torch.cuda.synchronize)
        found["difference"] = float(np.abs(result - wanted).max() / np.abs(wanted).max())
    finally:
        ours.close()
    if not found["difference"] <= _TOLERANCE[case.data_type]:
        raise ToolError(f"{case.name}, {case.data_type}: differs from PyTorch by "
                        f"{found['difference']:.2g} of the largest element")
    return found


def _captured(torch: Any, case: Case, builder: Torch) -> tuple[np.ndarray, Callable[[], None]]:
    """PyTorch's result, and a function that replays the case as a CUDA graph."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            case.describe(builder.again())
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        outputs = case.describe(builder.again())
    graph.replay()
    (output,) = outputs.values()
    return output.float().cpu().numpy(), graph.replay


def _torch() -> Any:
    try:
        import torch
    except ImportError:
        raise ToolError("bench vendor needs PyTorch: pip install torch") from None
    if not torch.cuda.is_available():
        raise ToolError("bench vendor needs an NVIDIA GPU that PyTorch sees")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    return torch


def main(device: str | None, file: Path | None) -> None:
    """Print milliseconds of a run, the rate, and the ratio to PyTorch's CUDA graph."""
    torch = _torch()
    rows, everything = [], []
    with open_context(device) as context:
        print(f"{context.device_info}; PyTorch {torch.__version__} on "
              f"{torch.cuda.get_device_name()}")
        for case in _cases():
            found = beside(context, torch, case)
            everything.append(found)
            rows.append(_cells(case, found))
    show(("", "type", "ours", "PyTorch's calls", "its CUDA graph", "our rate", "of its graph's"),
         rows)
    if file is not None:
        file.write_text(json.dumps(everything, indent=1) + "\n", encoding="utf-8")


def _cells(case: Case, found: Mapping[str, Any]) -> list[str]:
    rate = case.work / found["seconds"]
    return [
        case.name, case.data_type,
        *(f"{1e3 * found[name]:.3f} ms" for name in ("seconds", "torch_calls", "torch_graph")),
        f"{rate / 1e9:,.0f} GB/s" if case.of_memory else f"{rate / 1e12:.1f} TFLOP/s",
        f"{found['torch_graph'] / found['seconds']:.2f}",
    ]

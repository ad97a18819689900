"""Host memory of a graph's weights: resident bytes before, while and after a model is built.

The process's anonymous and shared pages (RssAnon + RssShmem) are counted. With a software driver
they include the device's memory, with a GPU that has separate memory they don't. For whole models
the highest number of all resident pages, mapped files and the driver's libraries included (VmHWM),
is measured too.
"""

from __future__ import annotations

import gc
import itertools
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk import MLGraphBuilder
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import open_context

from .cold import MODELS
from .models import classic
from .processes import cold_environment, json_of
from .table import show

#: Products in a row, each with a constant matrix.
LAYERS = 4
MEGABYTES = 400
STATUS = Path("/proc/self/status")


@dataclass(frozen=True)
class MemoryUse:
    """Bytes. ``peak`` and ``steady`` are the growth since before the model."""

    weights: int
    before: int
    peak: int
    steady: int
    after_run: int
    on_device: int
    #: The time of an import, before the build.
    seconds: float = 0.0
    #: The process's highest resident memory, ``before`` and mapped files included.
    highest: int = 0

    @property
    def wanted(self) -> float:
        """The limit of ``highest`` for a model from a file."""
        return 1.15 * self.weights + 150e6


def resident() -> int:
    """The current bytes of the process's anonymous and shared pages."""
    return _status("RssAnon", "RssShmem")


def highest_resident() -> int:
    """The most bytes of all pages that the process had at one time. Unlike ru_maxrss, it leaves out
    the process that started this one."""
    return _status("VmHWM")


def _status(*keys: str) -> int:
    try:
        lines = STATUS.read_text().splitlines()
    except OSError:
        raise ToolError(f"{STATUS} can't be read: this measurement needs Linux") from None
    found = dict(line.split(":", 1) for line in lines)
    return sum(1024 * int(found[key].split()[0]) for key in keys)


class Peak:
    """The highest ``resident()`` inside the ``with`` statement, read every few milliseconds."""

    def __init__(self) -> None:
        self.bytes = resident()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def _watch(self) -> None:
        while not self._over.wait(0.002):
            self.bytes = max(self.bytes, resident())

    def __enter__(self) -> Peak:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()


def build(context: Any, side: int, layers: int = LAYERS) -> Any:
    """The graph y = relu(… relu(x · w0) … · wn), and the operands that a caller may still have."""
    builder = MLGraphBuilder(context)
    operands = [builder.input("x", {"data_type": "float32", "shape": [1, side]})]
    for layer in range(layers):
        weights = np.full((side, side), 1 / side, np.float32)
        # Different bytes in every page, so that none can be shared.
        weights[:, 0] += np.float32(layer)
        operands.append(builder.constant(weights))
        del weights  # before the next ones are made
        operands.append(builder.relu(builder.gemm(operands[-2], operands[-1])))
    return builder.build({"y": operands[-1]}).result(), operands


def measure(context: Any, megabytes: int) -> MemoryUse:
    """Build a model with this number of megabytes of weights, run it, and measure its memory."""
    side = int((megabytes * 1e6 / LAYERS / 4) ** 0.5) // 8 * 8
    # Memory that every graph needs: kernels, the driver's compiler, staging memory.
    small, _ = build(context, 64, 1)
    context.compute(small, {"x": np.ones((1, 64), np.float32)})
    gc.collect()
    before, on_device = resident(), context._state.device.memory_in_use()
    with Peak() as peak:
        graph, _operands = build(context, side)
    gc.collect()
    time.sleep(0.2)  # the build's own thread ends
    steady = resident()
    result = context.compute(graph, {"x": np.ones((1, side), np.float32)})["y"]
    if not np.isfinite(result).all():
        raise ToolError("the model's result is not finite")
    gc.collect()
    return MemoryUse(
        LAYERS * side * side * 4,
        before,
        peak.bytes - before,
        steady - before,
        resident() - before,
        context._state.device.memory_in_use() - on_device,
    )


#: Kinds of layers in an imported model; packed weights and others, some of them transposed.
MODEL_PARTS = ("Conv", "Gemm", "MatMul")


def write_model(folder: str, megabytes: int) -> None:
    """Write two ONNX models with this number of megabytes of weights: ``embedded.onnx``, and
    ``external.onnx`` with a separate file of weights. It runs in a separate process, as it needs
    the weights in memory."""
    import onnx
    from onnx import helper, numpy_helper

    random = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    shapes = {"Conv": (512, 512, 3, 3), "Gemm": (1536, 1536), "MatMul": (1536, 1536)}
    size = 0
    for layer in itertools.count():
        if size >= megabytes * 1e6:
            break
        for kind in MODEL_PARTS:
            shape = shapes[kind]
            values = random.standard_normal(shape, np.float32) / np.float32(np.prod(shape[1:])**0.5)
            weights.append(numpy_helper.from_array(values, f"{kind}{layer}"))
            size += values.nbytes
            options = {"Conv": {"pads": [1] * 4}, "Gemm": {"transB": 1}, "MatMul": {}}[kind]
            source = name
            if kind == "Conv":
                source = f"image{layer}"
                nodes.append(helper.make_node("Reshape", [name, "image"], [source]))
            name = f"{kind}{layer}.y"
            nodes.append(helper.make_node(kind, [source, weights[-1].name], [name], **options))
            if kind == "Conv":
                nodes.append(helper.make_node("Reshape", [name, "rows"], [f"rows{layer}"]))
                name = f"rows{layer}"
    weights.append(numpy_helper.from_array(np.array([2, 512, 1, 3]), "image"))
    weights.append(numpy_helper.from_array(np.array([2, 1536]), "rows"))
    ports = [
        [helper.make_tensor_value_info(n, onnx.TensorProto.FLOAT, [2, 1536])] for n in ("x", name)
    ]
    graph = helper.make_graph(nodes, "model", *ports, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.save(model, f"{folder}/embedded.onnx")
    onnx.save(model, f"{folder}/external.onnx", save_as_external_data=True, location="weights")


def write_exported(path: Path, describe: classic.Describe) -> int:
    """Write a model as an ONNX file with its weights inside; their bytes."""
    import webnn_vk.onnx

    with open_context("cpu") as context:
        builder = MLGraphBuilder(context)
        webnn_vk.onnx.export(describe(builder), path, external_data=False)
    return path.stat().st_size


def measure_import(context: Any, path: Path, weights: int) -> MemoryUse:
    """The same for a model that is imported from ``path``, on a context without graphs."""
    import webnn_vk.onnx

    gc.collect()
    before, on_device = resident(), context._state.device.memory_in_use()
    with Peak() as peak:
        builder = MLGraphBuilder(context)
        start = time.perf_counter()
        outputs = webnn_vk.onnx.build_operands(path, builder)
        seconds = time.perf_counter() - start
        graph = builder.build(outputs).result()
    gc.collect()
    time.sleep(0.2)  # the build's own thread ends
    steady = resident()
    result = context.compute(graph, {"x": np.ones(graph.inputs["x"].shape, np.float32)})
    if not all(np.isfinite(array).all() for array in result.values()):
        raise ToolError("the model's result is not finite")
    gc.collect()
    return MemoryUse(
        weights,
        before,
        peak.bytes - before,
        steady - before,
        resident() - before,
        context._state.device.memory_in_use() - on_device,
        seconds,
        highest_resident(),
    )


@dataclass(frozen=True)
class ModelFigures:
    """Bytes. ``given``: the weights as the model has them; ``weights``: as the device has them,
    some transformed for faster kernels; ``peak``: the most while the model is described and built,
    beyond what an open context has. ``highest``: the process's highest resident memory till then,
    the libraries' pages and compiled kernels included."""

    given: int
    weights: int
    before: int
    peak: int
    highest: int

    @property
    def wanted(self) -> float:
        """The limit of ``highest``."""
        return 1.5 * self.given + 150e6


def measure_model(context: Any, name: str) -> ModelFigures:
    """Build one of ``bench.cold.MODELS`` on a context that has built nothing before."""
    gc.collect()
    before = resident()
    with Peak() as peak:
        graph = MODELS[name](context).result()
    highest = highest_resident()
    constants = executable_of(graph).program.constants
    given = sum(descriptor.byte_length for descriptor in constants)
    weights = graph.report().weight_bytes
    return ModelFigures(given, weights, before, peak.bytes - before, highest)


def model_in_a_process(device: str | None, name: str) -> ModelFigures:
    """``measure_model`` in a separate process."""
    return ModelFigures(**json_of("-c", _MODEL, json.dumps([device, name])))


_MODEL = """
import json, sys
from dataclasses import asdict
from bench.memory import measure_model
from webnn_vk.tools.devices import open_context
device, name = json.loads(sys.argv[1])
with open_context(device) as context:
    print(json.dumps(asdict(measure_model(context, name))))
"""


def import_in_a_process(
    device: str | None, path: Path, weights: int, variables: Mapping[str, str] | None = None
) -> MemoryUse:
    """``measure_import`` in a separate process, which has imported nothing before. ``variables``:
    its environment, by default this process's."""
    arguments = json.dumps([device, str(path), weights])
    return MemoryUse(**json_of("-c", _CHILD, arguments, variables=variables))


def import_with_cold_driver(device: str | None, path: Path, weights: int) -> MemoryUse:
    """The same in a process that finds its shaders, as a wheel's archive has them, and Mesa's cache
    of compiled kernels empty."""
    with tempfile.TemporaryDirectory() as folder:
        shaders = {"WEBNN_VK_CACHE": f"{folder}/ours"}
        import_in_a_process(device, path, weights, cold_environment(f"{folder}/first") | shaders)
        return import_in_a_process(
            device, path, weights, cold_environment(f"{folder}/second") | shaders
        )


_CHILD = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from bench.memory import measure_import
from webnn_vk.tools.devices import open_context
device, path, weights = json.loads(sys.argv[1])
with open_context(device) as context:
    print(json.dumps(asdict(measure_import(context, Path(path), weights))))
"""


def imports(device: str | None, megabytes: int) -> dict[str, MemoryUse]:
    """The memory use of the same model with its weights in a separate file, and in the model's
    file."""
    with tempfile.TemporaryDirectory() as folder:
        made = "import sys; from bench.memory import write_model; "
        made += "write_model(sys.argv[1], int(sys.argv[2]))"
        subprocess.run([sys.executable, "-c", made, folder, str(megabytes)], check=True)
        weights = (Path(folder) / "weights").stat().st_size
        return {
            name: import_in_a_process(device, Path(folder) / f"{name}.onnx", weights)
            for name in ("external", "embedded")
        }


def main(device: str | None, megabytes: int = MEGABYTES) -> None:
    with open_context(device) as context:
        use = measure(context, megabytes)
    print(f"{LAYERS} products with constant matrices, {use.weights / 1e6:.0f} MB of weights")
    _show(use)
    for name, imported in imports(device, megabytes).items():
        print(
            f"\nAn ONNX model with {imported.weights / 1e6:.0f} MB of {name} weights, imported in "
            f"{imported.seconds:.2f} s, before the build"
        )
        _show(imported)
        print(
            f"highest, all pages: {imported.highest / 1e6:.0f} MB; wanted: 1.15 × the weights + "
            f"150 MB, {imported.wanted / 1e6:.0f} MB"
        )
    print("\nModels, each in a process of its own; wanted: 1.5 × the weights given + 150 MB")
    rows = []
    for name in MODELS:
        model = model_in_a_process(device, name)
        values = (model.given, model.weights, model.before, model.peak, model.highest, model.wanted)
        rows.append([name, *(f"{value / 1e6:.0f}" for value in values)])
    titles = (
        "weights given", "on the device", "before", "peak, more than before", "highest, all pages",
        "wanted",
    )
    show(["MB", *titles], rows)


def _show(use: MemoryUse) -> None:
    rows = [
        [name, f"{value / 1e6:.0f}", f"{value / use.weights:.2f}"]
        for name, value in (
            ("before", use.before),
            ("peak of the build, more than before", use.peak),
            ("after the build, more than before", use.steady),
            ("after a run, more than before", use.after_run),
            ("the device's own account", use.on_device),
        )
    ]
    show(["resident memory", "MB", "× weights"], rows)

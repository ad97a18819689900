"""A graph's way through the compiler: a small network after each pass, as it is really compiled."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import webnn_vk
from scripts.generate.pictures import drawing
from tests.support.profiles import stored_profile
from webnn_vk.api.graph_source import with_weights
from webnn_vk.compiler.program import DispatchStep, Program, Target, compile_program

#: The device that it is compiled for.
PROFILE = "amd_navi31"
_ROW, _LEFT, _BAR, _LONGEST = 20, 26, 190, 200
#: The stage before the passes of each list: a form of the graph, and the function that makes it.
_FORMS = (
    ("Graph", "as the builder's calls describe it"),
    ("placed Graph", "each node on the device or the CPU, with the reason"),
    ("KernelGraph", "each node a kernel, with accesses to what it reads"),
)


def network(context: Any) -> Any:
    """A convolution and a transformer's layer as exporters write them, with random weights."""
    random = np.random.default_rng(0)
    b = webnn_vk.MLGraphBuilder(context)

    def weights(*shape: int) -> Any:
        return b.constant(random.normal(0, 0.1, shape).astype(np.float32))

    def scalar(value: float) -> Any:
        return b.constant("float32", value)

    def norm(x: Any) -> Any:
        mean = b.reduce_mean(x, axes=[2], keep_dimensions=True)
        centred = b.sub(x, mean)
        squares = b.pow(centred, scalar(2))
        variance = b.reduce_mean(squares, axes=[2], keep_dimensions=True)
        return b.div(centred, b.sqrt(b.add(variance, scalar(1e-5)))) * weights(64) + weights(64)

    def gelu(x: Any) -> Any:
        return x * scalar(0.5) * (b.erf(x / scalar(2**0.5)) + scalar(1))

    def heads(x: Any) -> Any:
        return b.transpose(b.reshape(x, [1, 64, 4, 16]), permutation=[0, 2, 1, 3])

    image = b.input("image", {"data_type": "float32", "shape": [1, 3, 32, 32]})
    x = b.conv2d(
        b.pad(image, [0, 0, 1, 1], [0, 0, 1, 1]), weights(64, 3, 4, 4), strides=[4, 4]
    )
    x = b.batch_normalization(x, weights(64), b.constant(np.ones(64, np.float32)))
    x = x * b.sigmoid(x)
    x = b.transpose(b.reshape(x, [1, 64, 64]), permutation=[0, 2, 1])
    normal = norm(x)
    query, key, value = (heads(b.matmul(normal, weights(64, 64))) for _ in range(3))
    scores = b.matmul(query, b.transpose(key, permutation=[0, 1, 3, 2])) * scalar(0.25)
    attended = b.transpose(b.matmul(b.softmax(scores, 3), value), permutation=[0, 2, 1, 3])
    x = x + b.matmul(b.reshape(attended, [1, 64, 64]), weights(64, 64))
    x = x + b.matmul(gelu(b.matmul(norm(x), weights(64, 256))), weights(256, 64))
    return b.build({"y": b.reduce_mean(x, axes=[1])})


def passes() -> tuple[list[list[tuple[str, int]]], Program]:
    """The lists of passes that run in order, each pass with the number of nodes after it (the first
    entry of a list: the number before it); and the final result."""
    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        graph = with_weights(network(context).result(), "picture")
    lists: list[list[tuple[str, int]]] = []
    with tempfile.TemporaryDirectory() as folder:
        program, _ = compile_program(graph, Target(stored_profile(PROFILE), dump=Path(folder)))
        for path in sorted(Path(folder).rglob("*.txt")):
            name = path.stem.partition("-")[2]
            nodes = sum(line.startswith("%") for line in path.read_text("utf-8").splitlines())
            lists += [[]] if name == "input" else []
            lists[-1].append((name, nodes))
    return lists, program


def picture() -> str:
    """The SVG."""
    lists, program = passes()
    assert len(lists) == len(_FORMS), "an attempt failed: choose a simpler network"
    most = max(nodes for entries in lists for _, nodes in entries)
    parts = [
        drawing.text(drawing.WIDTH / 2, 22, "The way of a graph through the compiler",
                     anchor="middle"),
        drawing.text(drawing.WIDTH / 2, 38, "a convolution and a transformer's layer for a GPU; "
                     "bars: the nodes that are left", "dim small", "middle"),
    ]
    y = 50.0
    for (form, about), entries in zip(_FORMS, lists, strict=True):
        y = _form(parts, y, form, about, "a")
        before = entries[0][1]
        for name, nodes in entries[1:]:
            length = _LONGEST * nodes / most
            parts.append(drawing.text(_LEFT + 16, y + 14, name))
            parts.append(drawing.bar(_BAR, y + 5, length, 10))
            change = nodes - before
            shown = f"{nodes}" + f" ({change:+})".replace("-", "−") * bool(change)
            parts.append(drawing.text(_BAR + length + 6, y + 14, shown, "dim small"))
            y, before = y + _ROW, nodes
        y += 6
    steps = list(program.device_steps)
    dispatches = [step for step in steps if isinstance(step, DispatchStep)]
    pipelines = {(step.spec, step.constants) for step in dispatches}
    modules = {step.spec for step in dispatches}
    y = _form(parts, y, "dispatches", "families choose schedules: kernel, tile sizes, loads", "b")
    for line in (
        f"{len(dispatches)} dispatches of {len(pipelines)} pipelines",
        f"{len(modules)} SPIR-V modules, by templates and codegen",
    ):
        parts.append(drawing.text(_LEFT + 16, y + 14, line))
        y += _ROW
    y = _form(parts, y + 6, "Program", "slots in an arena, barriers, constants by reference", "d")
    for line in (
        f"{len(steps)} steps: dispatches and barriers between them",
        f"{program.report.arena_bytes / 1024:.0f} KiB for all intermediates, "
        f"{len(program.setup)} constants packed at set-up",
    ):
        parts.append(drawing.text(_LEFT + 16, y + 14, line))
        y += _ROW
    title = "A graph on its way through the compiler, with the nodes that each pass leaves"
    return drawing.svg(y + 10, title, parts)


def _form(parts: list[str], y: float, form: str, about: str, kind: str) -> float:
    parts.append(drawing.rect(_LEFT - 14, y, drawing.WIDTH - 2 * (_LEFT - 14), 24, kind))
    parts.append(drawing.text(_LEFT - 4, y + 16, form))
    parts.append(drawing.text(drawing.WIDTH - _LEFT + 4, y + 16, about, "dim small", "end"))
    return y + 28

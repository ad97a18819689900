"""Models on a Vulkan device and on the CPU device, measured alternately in one run."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from webnn_vk.examples.sentence_encoder import Weights, build_encoder
from webnn_vk.tools.demo import read_model
from webnn_vk.tools.devices import open_context

from .models import mobilenet_v2
from .table import show

MINILM_SHAPES = ((1, 32), (8, 64))


def main(device: str | None, runs: int) -> None:
    """Median milliseconds of `runs` calls of `context.compute` per model and device."""
    model = read_model()
    with open_context(device) as first, open_context("cpu") as cpu:
        contexts = {"vulkan": first, "cpu": cpu} if first.device_info.is_vulkan else {"cpu": cpu}
        for context in contexts.values():
            print(f"{'Vulkan' if context.device_info.is_vulkan else 'CPU':7}{context.device_info}")
        weights = {name: Weights(context, model) for name, context in contexts.items()}
        for uploaded in weights.values():
            uploaded.upload()
        rows = [
            _row(f"MiniLM {batch} × {length} tokens", contexts, runs, *_minilm(weights, shape))
            for shape in MINILM_SHAPES
            for batch, length in [shape]
        ]
        rows.append(
            _row(
                "MobileNetV2 1 × 3 × 224 × 224",
                contexts,
                runs,
                lambda name: mobilenet_v2.build(contexts[name]),
                {"image": mobilenet_v2.image()},
            )
        )
    titles = ["model"]
    for name in contexts:
        titles += [f"{name} build s", "first ms", "median ms", "steps vk/cpu"]
    show([*titles, "cpu / vulkan"][: len(rows[0])], rows)


def _minilm(
    weights: dict[str, Weights], shape: tuple[int, int]
) -> tuple[Callable[[str], Any], dict[str, np.ndarray]]:
    batch, length = shape
    vocabulary = next(iter(weights.values())).config.vocabulary
    random = np.random.default_rng(0)
    inputs = {
        "ids": random.integers(0, vocabulary, (batch, length), np.int32),
        "mask": np.ones((batch, length), np.float32),
    }
    return (lambda name: build_encoder(weights[name], batch, length)), inputs


def _row(
    title: str,
    contexts: dict[str, Any],
    runs: int,
    build: Callable[[str], Any],
    inputs: dict[str, np.ndarray],
) -> list[str]:
    graphs, built, first = {}, {}, {}
    times: dict[str, list[float]] = {name: [] for name in contexts}
    for name, context in contexts.items():
        start = time.perf_counter()
        graphs[name] = build(name).result()
        built[name] = time.perf_counter() - start
        first[name] = _timed(context, graphs[name], inputs)
    for _ in range(runs):
        # Alternating, so that other load on the machine affects both.
        for name, context in contexts.items():
            times[name].append(_timed(context, graphs[name], inputs))
    row, medians = [title], {}
    for name in contexts:
        medians[name] = statistics.median(times[name])
        steps = [step.device for step in graphs[name].report().steps]
        row += [
            f"{built[name]:.2f}",
            f"{first[name] * 1e3:.1f}",
            f"{medians[name] * 1e3:.1f}",
            f"{steps.count('vulkan')}/{steps.count('cpu')}",
        ]
        graphs[name].destroy()
    if len(contexts) == 2:
        row.append(f"{medians['cpu'] / medians['vulkan']:.2f}")
    return row


def _timed(context: Any, graph: Any, inputs: dict[str, np.ndarray]) -> float:
    start = time.perf_counter()
    context.compute(graph, inputs)
    return time.perf_counter() - start

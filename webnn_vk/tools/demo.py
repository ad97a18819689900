"""`webnn-vk demo`: semantic search with a trained sentence encoder."""

from __future__ import annotations

import importlib.resources
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.examples.sentence_encoder import (
    INSTALL_COMMAND,
    PACKAGE,
    Model,
    ModelError,
    SentenceEncoder,
    load_model,
    plan_batches,
)
from webnn_vk.examples.weights import is_installed
from webnn_vk.support import packages
from webnn_vk.support.dataclass import dataclass

from . import ToolError
from .devices import device_title, open_context
from .output import Steps, emit, working

QUESTION = "What helps against a headache?"


def example_sentences() -> Path:
    """The sentences included in the library (`examples/` in a checkout)."""
    return Path(str(importlib.resources.files("webnn_vk.examples") / "sentences.txt"))


def need_with_weights(feature: str, weights: str | None, command: str) -> None:
    """Raises `ToolError` where a demo lacks packages. It names libraries, and the package of
    weights with the command that installs it."""
    problem = packages.problem("the demo needs", feature)
    if problem and weights is not None and not is_installed(weights):
        problem = f"{problem} && {command}"
    if problem:
        raise ToolError(problem)


def read_model(folder: Path | None = None) -> Model:
    """The sentence encoder in `folder`, by default the pinned one. `ToolError` if unusable."""
    need_with_weights("search", PACKAGE if folder is None else None, INSTALL_COMMAND)
    try:
        return load_model(folder)
    except ModelError as error:
        raise ToolError(str(error)) from None


def read_sentences(path: Path) -> list[str]:
    """The non-empty lines of a UTF-8 text file."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ToolError(f"cannot read the sentences: {error.strerror}: {path}") from None
    except UnicodeDecodeError:
        raise ToolError(f"cannot read the sentences: {path} is not UTF-8 text") from None
    sentences = [line.strip() for line in text.splitlines() if line.strip()]
    if not sentences:
        raise ToolError(f"{path} has no sentences: one per line is expected")
    return sentences


def check_text(text: str, what: str) -> None:
    """Raises `ToolError` unless an argument is text. Python represents bytes that are not UTF-8 as
    surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        raise ToolError(f"{what} is not UTF-8 text") from None


@dataclass(frozen=True)
class Measured:
    """One device's embeddings of sentences (the last row: the question) and its times in seconds:
    "weights" (the upload), "build", "first" and "steady" (runs), "question" (alone)."""

    embeddings: np.ndarray
    seconds: dict[str, float]
    graphs: int
    steps: dict[str, int]


def measure(context: Any, model: Model, texts: Sequence[str], bar: Steps) -> Measured:
    """Build the graphs, run the sentences twice in batches, then the question (the last) alone."""
    encoder = SentenceEncoder(context, model, bar.step)
    sentences, question = texts[:-1], texts[-1:]
    for group in (sentences, question):
        encoder.prepare(encoder.plan(group)[1])

    def timed(group: Sequence[str]) -> tuple[np.ndarray, float]:
        start = time.perf_counter()
        return encoder.encode(group), time.perf_counter() - start

    embeddings, first = timed(sentences)
    _, steady = timed(sentences)
    encoder.encode(question)
    vector, alone = timed(question)
    steps: dict[str, int] = {"vulkan": 0, "cpu": 0}
    for graph in encoder.graphs.values():
        for step in graph.report().steps:
            steps[step.device] += 1
    seconds = {"weights": encoder.weights_seconds, "build": encoder.build_seconds,
               "first": first, "steady": steady, "question": alone}
    return Measured(np.concatenate([embeddings, vector]), seconds, len(encoder.graphs), steps)


def _step_count(model: Model, texts: Sequence[str]) -> int:
    """The progress steps of one `measure`: uploads, builds, batches."""
    batches = plan_batches([len(ids) for ids in model.tokenize(texts[:-1])], model.config.positions)
    graphs = len({(batch.size, batch.length) for batch in batches}) + 1
    return len(model.weights) + graphs + 2 * len(batches) + 2


def run(
    question: str, file: Path | None, folder: Path | None, device: str | None, top: int,
    as_json: bool = False,
) -> None:
    """Run the demo and print the results. `ToolError` for unusable input."""
    check_text(question, "the question")
    sentences = read_sentences(file or example_sentences())
    model = read_model(folder)
    texts = [*sentences, question]
    with open_context(device) as context:
        on_vulkan = context.device_info.is_vulkan
        if not as_json:
            print(f"Device    {device_title(context)}", flush=True)
        with working("encoding", _step_count(model, texts) * (2 if on_vulkan else 1)) as bar:
            measured = measure(context, model, texts, bar)
            reference = None
            if on_vulkan:
                with open_context("cpu") as cpu:
                    reference = measure(cpu, model, texts, bar)
    matches = _matches(sentences, measured.embeddings, top)
    if as_json:
        emit({
            "device": str(context.device_info), "question": question, "matches": matches,
            "seconds": measured.seconds, "graphs": measured.graphs, "steps": measured.steps,
            "difference_from_cpu": reference and _difference(measured, reference),
        })
        return
    print(f"Question  {question}\n")
    for match in matches:
        print(f"  {match['score']:6.3f}  {match['sentence']}")
    print()
    _print_times(measured, reference, len(sentences))


def _matches(sentences: Sequence[str], embeddings: np.ndarray, top: int) -> list[dict[str, Any]]:
    scores = embeddings[:-1] @ embeddings[-1]
    return [
        {"score": float(scores[index]), "sentence": sentences[index]}
        for index in np.argsort(-scores, kind="stable")[:top]
    ]


def _difference(measured: Measured, reference: Measured) -> float:
    return float(np.abs(measured.embeddings - reference.embeddings).max())


def _print_times(measured: Measured, reference: Measured | None, sentences: int) -> None:
    took = measured.seconds
    print(
        f"Times     weights {took['weights']:.2f} s, build {took['build']:.2f} s "
        f"({measured.graphs} graphs), first run {took['first']:.2f} s,\n"
        f"          steady run {took['steady']:.2f} s ({sentences} sentences, "
        f"{sentences / took['steady']:.0f} per second), the question alone "
        f"{took['question'] * 1e3:.0f} ms"
    )
    print(f"Steps     {measured.steps['vulkan']} on Vulkan, {measured.steps['cpu']} on the CPU")
    if reference is None:
        print("Check     the demo ran on the CPU device, so there is nothing to compare with")
        return
    print(
        f"Check     largest difference from the CPU device: {_difference(measured, reference):.1e} "
        f"(its steady run: {reference.seconds['steady']:.2f} s)"
    )

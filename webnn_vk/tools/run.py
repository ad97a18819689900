"""``webnn-vk run``: one run of a model, and its outputs."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.support.errors import sanitize
from webnn_vk.support.formatting import duration

from . import ToolError
from .loaded_model import Options, loaded
from .output import emit, facts, table, writable, writing

#: How many of the largest elements are shown, and the largest vectors for which they are.
_TOP, _CLASSES = 5, 100_000


def run(options: Options, output: Path | None, top: bool) -> None:
    """Run the model once and print its outputs. ``output``: a file for the arrays."""
    if output is not None:
        check_output(output)
    with loaded(options) as model:
        feeds = model.feeds
        model.bar.begin("running")
        start = time.perf_counter()
        results = model.context.compute(model.graph, feeds)
        seconds = time.perf_counter() - start
    inputs = [described(n, a) for n, a in {**feeds, **model.opened.bound}.items()]
    if output is not None:
        write(output, results)
    outputs = [described(name, array) for name, array in results.items()]
    if options.json:
        emit({
            "model": model.title, "device": model.device, "build_seconds": model.build_seconds,
            "run_seconds": seconds, "inputs": inputs, "outputs": outputs,
            "written": output and str(output),
        })
        return
    facts([("Device", model.device), ("Model", f"{model.title}: {model.report.summary}"),
           ("Build", duration(model.build_seconds)),
           ("Run", f"{duration(seconds)}, the first: inputs written, outputs read")])
    print()
    head = ("", "name", "type", "shape", "min", "max", "mean", "not finite")
    keys = ("name", "type", "shape", "min", "max", "mean", "not_finite")
    table(head, [
        (kind, *(_cell(row[key]) for key in keys))
        for kind, rows in (("input", inputs), ("output", outputs)) for row in rows
    ], right=("min", "max", "mean", "not finite"))
    if top:
        show_top(results)
    if output is not None:
        print(f"\nWritten   {output}")


def described(name: str, array: np.ndarray) -> dict[str, Any]:
    """The statistics of an array, for JSON."""
    finite = np.isfinite(array.astype(np.float64)) if array.size else np.zeros(0, bool)
    known = array[finite].astype(np.float64)
    found = {"min": known.min(), "max": known.max(), "mean": known.mean()} if known.size else {}
    return {
        "name": name, "type": array.dtype.name, "shape": list(array.shape),
        **{key: float(found[key]) if found else None for key in ("min", "max", "mean")},
        "not_finite": int(array.size - finite.sum()),
    }


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.5g}"
    return sanitize(str(value)) if value is not None else ""


def show_top(results: Mapping[str, np.ndarray]) -> None:
    """Print the largest elements of vector outputs, as of classifiers."""
    for name, array in results.items():
        if array.size == max(array.shape, default=0) and 1 < array.size <= _CLASSES:
            flat = array.reshape(-1)
            best = np.argsort(-flat.astype(np.float64), kind="stable")[:_TOP]
            print(f"\n{sanitize(name)}, the largest of {flat.size}:")
            for index in best:
                print(f"  {index:6}  {flat[index]:.6g}")


def check_output(path: Path) -> None:
    """Raises ``ToolError``, before any work is done, where the outputs can't be written."""
    if path.suffix.lower() not in (".npy", ".npz"):
        raise ToolError(f"--output {path}: a .npz file (or .npy for one output) is written")
    writable((path, ()))


def write(path: Path, results: Mapping[str, np.ndarray]) -> None:
    """Write the outputs. ``ToolError`` where that fails."""
    with writing(path):
        if path.suffix.lower() == ".npz":
            np.savez(path, **results)
            return
        if len(results) != 1:
            raise ToolError(f"--output {path}: the model has {len(results)} outputs; give a .npz")
        np.save(path, *results.values())

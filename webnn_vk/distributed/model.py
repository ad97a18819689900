"""A model that takes columns of rows, in batches of any size."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.api.context import MLContext
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.api.navigator import ml
from webnn_vk.onnx import Session, load
from webnn_vk.onnx.reading import read_model
from webnn_vk.onnx.types import numpy_type, to_carrier
from webnn_vk.support import environment
from webnn_vk.support.errors import InvalidStateError, NotSupportedError, sanitize
from webnn_vk.support.settings import Settings

from .assignment import assigned_cores, assigned_device
from .rows import RowError, Where, batched

Names = Sequence[str] | Mapping[str, str] | None


class RowModel:
    """An ONNX model on the device that the engine assigned, or on ``device``. The first dimension
    of its inputs and outputs is the row. See ``distributed.ray.Predictor`` for the arguments."""

    def __init__(self, model: Any, inputs: Names, outputs: Names, device: str | None) -> None:
        self._source = os.fspath(model) if isinstance(model, os.PathLike) else model
        self._model = read_model(self._source)
        self._ports = self._model.inputs
        self.inputs = _renamed(inputs, list(self._ports), "input")
        self.outputs = _renamed(outputs, list(self._model.outputs), "output")
        if {*self.inputs} != {*self._ports}:
            raise ValueError(f"inputs: all of {', '.join(map(sanitize, self._ports))} are needed")
        #: The number of rows of a model that fixes it, None for any.
        self.fixed = self._fixed_rows()
        self._device = assigned_device() if device is None else device
        cores = assigned_cores()
        if cores is not None:
            # Software Vulkan; for the CPU device engines set OMP_NUM_THREADS.
            environment.set_default("LP_NUM_THREADS", str(cores))
        self._lock = threading.Lock()
        self._digest = ""
        self._open()

    def _open(self) -> None:
        settings = Settings.from_environment()
        if self._device is not None:
            settings = replace(settings, device=self._device)
        self.context: MLContext = ml.create_context(settings=settings).result()
        self._graphs: dict[Any, MLGraph] = {}
        self._largest = 0
        # ONNX Runtime takes any number of rows; graphs are of one each.
        self._session = (
            None if self.context.device_info.is_vulkan
            else Session(self._model, self.context, outputs=self._wanted())
        )

    def _wanted(self) -> list[str] | None:
        names = list(self.outputs)
        return None if names == list(self._model.outputs) else names

    def single_input(self) -> tuple[str, np.dtype, tuple[int | str | None, ...]]:
        """Name, type and shape of a row of the only input. ValueError if there are several."""
        if len(self._ports) != 1:
            raise ValueError(f"the model has {len(self._ports)} inputs; images go into one")
        [(name, port)] = self._ports.items()
        return name, numpy_type(port.type), (port.shape or ())[1:]

    def lost(self) -> str | None:
        """Why the device was lost, or None; at once."""
        lost = self.context.lost
        return lost.result().message if lost.done() else None

    def feeds(
        self, columns: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray] | None, dict[int, str]]:
        """The model's inputs, None if rows don't fit, and what is wrong by the places of rows.
        RowError for a missing column."""
        feeds, wrong = {}, {}
        for name, column in self.inputs.items():
            if column not in columns:
                there = ", ".join(map(sanitize, columns)) or "none"
                raise RowError(f"there is no column {sanitize(column)!r}; columns: {there}")
            port = self._ports[name]
            values = columns[column]
            shape = values.shape[1:] if port.shape is None else port.shape[1:]
            feeds[name], bad = batched(column, values, numpy_type(port.type), shape)
            wrong |= bad
        return (None if wrong else feeds), wrong  # type: ignore[return-value]

    def run(self, columns: Mapping[str, np.ndarray], where: Where) -> dict[str, np.ndarray]:
        """The outputs, by the names of their columns, for all rows. ``where`` names a row for
        RowError. Other errors as ``MLContext.compute``; a lost device is opened again, once."""
        feeds, wrong = self.feeds(columns)
        if feeds is None:
            first = min(wrong)
            raise RowError(f"{where(first)}: {wrong[first]}")
        with self._lock:
            try:
                return self._run(feeds)
            except InvalidStateError:
                if self.lost() is None:
                    raise
                self._open()
                return self._run(feeds)

    def _run(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        count = len(next(iter(feeds.values())))
        step = self.fixed or count
        parts = [
            self._batch({n: a[i : i + step] for n, a in feeds.items()})
            for i in range(0, count, max(step, 1))
        ]
        if not parts:  # no rows: those of one, without it
            one = {n: np.zeros((1, *a.shape[1:]), a.dtype) for n, a in feeds.items()}
            parts = [{name: array[:0] for name, array in self._batch(one).items()}]
        joined = parts[0] if len(parts) == 1 else {
            name: np.concatenate([part[name] for part in parts]) for name in parts[0]
        }
        return {column: joined[name] for name, column in self.outputs.items()}

    def _batch(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of at most as many rows as a graph takes, the last of which are repeated."""
        count = len(next(iter(feeds.values())))
        size = self.fixed or (count if self._session else self._size(count))
        if size > count:
            feeds = {n: np.concatenate([a, np.repeat(a[-1:], size - count, 0)])
                     for n, a in feeds.items()}
        if self._session is not None:
            made = dict(zip(self.outputs, self._session.run(list(self.outputs), feeds),
                            strict=True))
        else:
            made = self._compute(feeds)
        for name, array in made.items():
            if array.shape[:1] != (size,):
                raise ValueError(
                    f"output {sanitize(name)!r} is {list(array.shape)} for {size} rows: its first "
                    "dimension isn't the row"
                )
        return made if size == count else {name: array[:count] for name, array in made.items()}

    def _size(self, count: int) -> int:
        """The rows of the graph for so many: a power of two below the largest batch so far, so
        that the odd batches at the ends of blocks need few graphs."""
        if count >= self._largest:
            self._largest = count
            return count
        return min(1 << (count - 1).bit_length(), self._largest)

    def _compute(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        shapes = tuple((name, array.shape) for name, array in sorted(feeds.items()))
        graph = self._graphs.get(shapes)
        if graph is None:
            graph = self._graphs[shapes] = self._graph(shapes)
        given = {n: to_carrier(feeds[n], d.data_type) for n, d in graph.inputs.items()}
        made = self.context.compute(graph, given)
        kinds = {name: numpy_type(self._model.outputs[name].type) for name in self.outputs}
        return {n: made[n].astype(kind, copy=False) for n, kind in kinds.items()}

    def _graph(self, shapes: tuple[tuple[str, tuple[int, ...]], ...]) -> MLGraph:
        """The graph from the cache of saved graphs, else built, and saved where that can be."""
        self._digest = self._digest or self._hash()
        key = f"rows {self._digest} {shapes} {sorted(self.outputs)}"
        try:
            return self.context.load_graph(key).result()
        except NotSupportedError:
            graph = load(self._model, self.context, dict(shapes), outputs=self._wanted()).result()
        try:
            self.context.save_graph(key, graph).result()
        except NotSupportedError:
            pass  # there is no folder for caches
        return graph

    def _hash(self) -> str:
        """What tells the model from others: its bytes, and the state of files with its weights."""
        source, beside = self._source, []
        if not isinstance(source, str):
            data = source if isinstance(source, bytes) else source.SerializeToString()
            return hashlib.sha256(data).hexdigest()
        for name in sorted({
            entry.value for tensor in self._model.graph.initializer
            for entry in tensor.external_data if entry.key == "location"
        }):
            path = Path(source).parent / name
            if path.is_file():
                beside.append((name, path.stat().st_size, path.stat().st_mtime_ns))
        with Path(source).open("rb") as file:
            return f"{hashlib.file_digest(file, 'sha256').hexdigest()} {beside or ''}"

    def _fixed_rows(self) -> int | None:
        rows = {p.shape[0] if p.shape else None for p in self._ports.values()
                if p.shape is None or p.shape[:1]}
        numbers = {n for n in rows if isinstance(n, int)}
        scalar = [name for name, p in self._ports.items() if p.shape == ()]
        if scalar or len(numbers) > 1 or numbers and len(rows) > 1:
            raise ValueError(
                "the first dimension of all inputs must be the row; they are " + ", ".join(
                    f"{sanitize(n)!r} {list(p.shape or ())}" for n, p in self._ports.items())
            )
        return next(iter(numbers), None)


def _renamed(given: Names, names: Sequence[str], what: str) -> dict[str, str]:
    """The columns by the model's names."""
    chosen = {name: name for name in names} if given is None else (
        dict(given) if isinstance(given, Mapping) else {name: name for name in given}
    )
    unknown = [name for name in chosen if name not in names]
    if isinstance(given, str) or unknown or not chosen:
        raise ValueError(
            f"{what}s: {sanitize(str(unknown[0] if unknown else given))!r} is none of the model's "
            f"{what}s: {', '.join(map(sanitize, names))}"
        )
    return chosen

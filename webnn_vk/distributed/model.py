"""A model that takes columns of rows, in batches of any size."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
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
from webnn_vk.support.background import run_on_worker
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
        names = list(self._ports)
        self.inputs = dict(zip(names, names, strict=True)) | _renamed(inputs, names, "input")
        self.outputs = _renamed(outputs, list(self._model.outputs), "output")
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
            None if self.context.device_info.is_vulkan else Session(self._model, self.context)
        )

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
    ) -> tuple[dict[str, np.ndarray], dict[int, str]]:
        """The model's inputs of the rows that fit, and what is wrong with the others, by their
        places. RowError for a missing column."""
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
        if wrong:
            left = [i for i in range(len(values)) if i not in wrong]
            fitting = {column: columns[column][left] for column in self.inputs.values()}
            feeds, more = self.feeds(fitting) if left else ({}, {})
            wrong |= {left[place]: why for place, why in more.items()}
        return feeds, wrong  # type: ignore[return-value]

    def run(self, columns: Mapping[str, np.ndarray], where: Where) -> dict[str, np.ndarray]:
        """The outputs of all rows. ``where`` names a row for RowError; other errors as
        ``compute``."""
        feeds, wrong = self.feeds(columns)
        if wrong:
            first = min(wrong)
            raise RowError(f"{where(first)}: {wrong[first]}")
        return self.compute(feeds)

    def compute(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs for the model's inputs, by the names of their columns. Errors as
        ``MLContext.compute``; a lost device is opened again, once."""
        return run_on_worker(self._computed, feeds)

    def _computed(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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
        step = self.fixed or max(count, 1)
        parts = [
            self._batch({n: a[i : i + step] for n, a in feeds.items()})
            for i in range(0, max(count, 1), step)
        ]
        return {
            column: parts[0][name] if len(parts) == 1
            else np.concatenate([part[name] for part in parts])
            for name, column in self.outputs.items()
        }

    def _batch(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """The outputs of at most as many rows as a graph takes, padded by zeros."""
        count = len(next(iter(feeds.values())))
        size = self.fixed or max(count if self._session else self._size(count), 1)
        if size > count:
            feeds = {n: np.concatenate([a, np.zeros((size - count, *a.shape[1:]), a.dtype)])
                     for n, a in feeds.items()}
        names = list(self.outputs)
        if self._session is None:
            made = self._by_graph(feeds)
        else:
            made = dict(zip(names, self._session.run(names, feeds), strict=True))
        for name, array in made.items():
            if array.shape[:1] != (size,):
                raise ValueError(
                    f"output {sanitize(name)!r} is {list(array.shape)} for {size} rows: its first "
                    "dimension isn't the row"
                )
        return {name: array[:count] for name, array in made.items()}

    def _size(self, count: int) -> int:
        """The rows of the graph for so many: a power of two below the largest batch so far, so
        that the odd batches at the ends of blocks need few graphs."""
        if count >= self._largest:
            self._largest = count
            return count
        return min(1 << (count - 1).bit_length(), self._largest)

    def _by_graph(self, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
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
        with suppress(NotSupportedError):  # there is none, or no folder for caches
            return self.context.load_graph(key).result()
        graph = load(self._model, self.context, dict(shapes), outputs=[*self.outputs]).result()
        with suppress(NotSupportedError):
            self.context.save_graph(key, graph).result()
        return graph

    def _hash(self) -> str:
        """The model's identity: its bytes, and the state of files with its weights."""
        source = self._source
        if not isinstance(source, str):
            data = source if isinstance(source, bytes) else source.SerializeToString()
            return hashlib.sha256(data).hexdigest()
        names = {entry.value for tensor in self._model.graph.initializer
                 for entry in tensor.external_data if entry.key == "location"}
        states = [(name, file.stat().st_size, file.stat().st_mtime_ns) for name in sorted(names)
                  if (file := Path(source).parent / name).is_file()]
        whole = hashlib.sha256(np.memmap(source, mode="r"))
        return f"{whole.hexdigest()} {states or ''}"

    def _fixed_rows(self) -> int | None:
        rows = {None if p.shape is None else (*p.shape, 0)[0] for p in self._ports.values()}
        numbers = {n for n in rows if isinstance(n, int)}
        if 0 in numbers or numbers and len(rows) > 1:
            raise ValueError(
                "the first dimension of all inputs must be the row; they are " + ", ".join(
                    f"{sanitize(n)!r} {list(p.shape or ())}" for n, p in self._ports.items())
            )
        return next(iter(numbers), None)


def _renamed(given: Names, names: Sequence[str], what: str) -> dict[str, str]:
    """The columns by the model's names."""
    words = names if given is None else given
    chosen = dict(words if isinstance(words, Mapping) else zip(words, words, strict=True))
    unknown = [name for name in chosen if name not in names]
    if isinstance(given, str) or unknown or not chosen:
        raise ValueError(
            f"{what}s: {sanitize(str(unknown[0] if unknown else given))!r} is none of the model's "
            f"{what}s: {', '.join(map(sanitize, names))}"
        )
    return chosen

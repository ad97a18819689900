"""Runs of a model's sequences on its device, one at a time.

Threads that want a run take turns at starting the next one: the thread waits for the run before,
takes what is wanted by then, and starts it. Sequences whose next token is wanted share a run. So
the model has no thread of its own, and sequences join and leave at any token. The main thread,
which signal handlers interrupt, leaves its calls to workers (``background.run_on_worker``).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np

from webnn_vk.api.context import MLContext
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.api.tensor import MLTensor
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.promise import MLPromise

from .chooser import Choice, Chooser

#: The most sequences of a run, and the smaller numbers that have a graph.
BATCHES = (16, 8, 4, 2, 1)
#: How long a run waits for the sequences of the run before, as a part of that run's time. Without
#: this wait, sequences in step with each other would fall into two groups that run in turn.
PAUSE = 1 / 8


@dataclass(eq=False)
class Run:
    """Tokens of a sequence, behind the first ``position`` rows of its cache. A graph for ``size``
    tokens computes them; with ``every``, the result has a row for each of these. ``wants``:
    "token" (the most probable one), "choice" (a token, which is chosen as ``choice`` says) or
    "logits"."""

    cache: Mapping[str, MLTensor]
    tokens: Sequence[int]
    position: int
    size: int = 1
    every: bool = False
    wants: str = "token"
    choice: Choice | None = None
    #: Once the run was started: its results, of which ``row`` is the sequence's; or an error.
    results: MLPromise[np.ndarray] | None = None
    row: int | None = None
    error: Exception | None = None

    @property
    def is_started(self) -> bool:
        return self.results is not None or self.error is not None

    @property
    def is_shared(self) -> bool:
        """Whether other sequences can be in the same run."""
        return self.size == 1 and not self.every


class Graphs(Protocol):
    """Gives the graph for a number of tokens of a number of sequences."""

    def __call__(self, tokens: int, every: bool = False, sequences: int = 1) -> MLGraph: ...


@dataclass
class Scheduler:
    """Starts the runs of a model. ``graph`` gives the graph for tokens of sequences; ``chooser``
    chooses tokens from their results."""

    context: MLContext
    graph: Graphs
    chooser: Chooser
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _waiting: list[Run] = field(default_factory=list)
    _is_starting: bool = False
    _last: MLPromise[np.ndarray] | None = None
    # The caches of the last shared run whose sequences want no other run yet.
    _absent: set[int] = field(default_factory=set)
    _pause: float = 0.0
    _began: float = 0.0
    # Step and results of the runs, by graph.
    _tensors: dict[MLGraph, dict[Any, MLTensor]] = field(default_factory=dict)

    def compute(self, run: Run) -> np.ndarray:
        """The run's result: token [rows] or logits [rows, vocabulary]. Not for the main thread."""
        with self._changed:
            self._waiting.append(run)
            self._absent.discard(id(run.cache))
            self._changed.notify_all()
        try:
            while not run.is_started:
                self._start_or_wait(run)
        finally:
            with self._changed:
                self._waiting.remove(run)
        if run.error is not None:
            raise run.error
        assert run.results is not None
        found = run.results.result()
        if run.is_shared:
            self._pause = PAUSE * (time.monotonic() - self._began)
        return found if run.row is None else found[run.row : run.row + 1]

    def _start_or_wait(self, run: Run) -> None:
        with self._changed:
            self._changed.wait_for(lambda: run.is_started or not self._is_starting)
            if run.is_started:
                return
            self._is_starting = True
        try:
            self._start_next()
        finally:
            with self._changed:
                self._is_starting = False
                self._changed.notify_all()

    def _start_next(self) -> None:
        """Start what is wanted when the run before has ended."""
        if self._last is not None:
            self._last.exception()
        with self._changed:
            if self._absent and self._next_runs()[0].is_shared:
                self._changed.wait_for(lambda: not self._absent, self._pause)
            group = self._next_runs()
            if group[0].is_shared:
                self._absent = {id(run.cache) for run in group}
        try:
            self._start(group)
        except Exception as error:
            for run in group:
                run.error = error

    def _next_runs(self) -> list[Run]:
        """The run that waits longest, with others that can share it."""
        waiting = [run for run in self._waiting if not run.is_started]
        if not waiting[0].is_shared:
            return waiting[:1]
        shared = [run for run in waiting if run.is_shared]
        group = shared[: next(n for n in BATCHES if n <= len(shared))]
        # A device replays what it recorded, if the tensors are the same in the same order.
        return sorted(group, key=lambda run: id(run.cache))

    def _start(self, group: Sequence[Run]) -> None:
        first = group[0]
        graph = self.graph(first.size, first.every, len(group))
        tensors = self._tensors_of(graph, first.size)
        if first.is_shared and len(group) > 1:
            step = [*(run.tokens[0] for run in group), *(run.position for run in group)]
            cache = {f"{n}.{row}": t for row, run in enumerate(group) for n, t in run.cache.items()}
        else:
            # Not any token: the rows of one whose weights are NaN would be NaN in the cache.
            padding = [first.tokens[-1]] * (first.size - len(first.tokens))
            step = [*first.tokens, *padding, first.position, len(first.tokens) - 1]
            cache = dict(first.cache)
        wanted = {run.wants for run in group}
        prepared = None
        if "choice" in wanted:
            # What is written before the first dispatch is part of the same submit.
            wanted.remove("choice")
            prepared = self.chooser.prepare([run.choice for run in group])
        self.context.write_tensor(tensors["step"], np.array(step, np.uint32))
        self.context.dispatch(
            graph, {"step": tensors["step"], **cache},
            {
                "logits": tensors["logits"], "token": tensors["token"],
                **{f"new {name}": tensor for name, tensor in cache.items()},
            },
        )
        self._began = time.monotonic()
        results = {name: self.context.read_tensor(tensors[name]) for name in wanted}
        if prepared is not None:
            results["choice"] = prepared.start(tensors["logits"])
        for row, run in enumerate(group):
            run.row = row if len(group) > 1 else None
            run.results = self._last = results[run.wants]

    def _tensors_of(self, graph: MLGraph, size: int) -> dict[str, MLTensor]:
        """Tensors for the step and the results of a graph's runs on ``size`` tokens."""
        made = self._tensors.setdefault(graph, {})
        described = {"step": graph.inputs["step"]} | {
            name: graph.outputs[name] for name in ("logits", "token")
        }
        found = {}
        for name, descriptor in described.items():
            # The step of a graph for any number of tokens has a shape for each.
            shape = tuple(d if isinstance(d, int) else size + 2 for d in descriptor.shape)
            if (name, shape) not in made:
                made[name, shape] = self.context.create_tensor({
                    "data_type": descriptor.data_type, "shape": shape,
                    "readable": name != "step", "writable": name == "step",
                }).result()
            found[name] = made[name, shape]
        return found

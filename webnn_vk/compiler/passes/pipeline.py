"""The pipeline: passes as data, the state they share, and the function that runs them.

A pass is a name and a pure function from a graph to a graph. The same runner serves every form of
graph that can verify itself and be printed.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass
from webnn_vk.support.errors import nearest
from webnn_vk.support.settings import verify_passes

from .dump import Dump

_NAME = re.compile(r"[a-z][a-z0-9_]*")


class VerifiableGraph(Protocol):
    """A graph as the runner needs it: ``verify()`` raises ValueError or TypeError if an invariant
    is broken, ``str()`` is its text form."""

    def verify(self) -> None: ...


IR = TypeVar("IR", bound=VerifiableGraph)


class Notes:
    """Notes of passes for the report: texts by the pass's name, and the seconds each took."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._texts: dict[str, list[str]] = {}

    def add(self, name: str, text: str) -> None:
        """Add a text of the pass called ``name``."""
        self._texts.setdefault(name, []).append(text)

    def of(self, name: str) -> tuple[str, ...]:
        """The texts of the pass called ``name``, in order."""
        return tuple(self._texts.get(name, ()))


@dataclass(frozen=True)
class Target:
    """The target of compilations; ``profile`` None is the CPU device.

    ``force_cpu``: operators that have to stay unchanged, on the CPU. ``has_compiler``: whether
    kernels for a graph can be compiled. ``available``: whether a shader is available (from the
    archive, the cache or the compiler). ``refused``: the modules and pipelines that the GLSL
    compiler or the driver refused, and why (``kernels.dispatch.Refused``). ``skip``: names of
    passes left out. ``tuned``: schedules chosen by measurements, by kernels. ``dump``: a folder for
    the texts of the graphs. ``after_pass`` is called with a pass's name and the graph after it,
    ``planned`` with each pipeline (``program.Planned``).
    """

    profile: DeviceProfile | None
    force_cpu: Collection[str] = ()
    has_compiler: bool = True
    available: Callable[[Any], bool] = lambda spec: True
    refused: Mapping[Any, str] = field(default_factory=dict)
    skip: Collection[str] = ()
    tuned: Mapping[Any, Any] = field(default_factory=dict)
    dump: Path | None = None
    after_pass: Callable[[str, Any], None] | None = None
    planned: Callable[[Any, Any], None] | None = None


@dataclass(frozen=True)
class Compilation(Target):
    """The compilation of one graph for a target, as passes see it. They only read it, except
    ``notes`` and ``texts``.

    ``donated``: inputs whose memory an output takes over, input → output.
    ``verify``: check the graph after every pass (``WEBNN_VK_VERIFY_PASSES``). ``texts``: where the
    text of the graph is written after every pass.
    """

    profile: DeviceProfile | None = None
    force_cpu: frozenset[str] = frozenset()
    skip: frozenset[str] = frozenset()
    donated: Mapping[str, str] = field(default_factory=dict)
    notes: Notes = field(default_factory=Notes)
    verify: bool = field(default_factory=verify_passes)
    texts: Dump | None = None


@dataclass(frozen=True)
class Pass(Generic[IR]):
    """A named step of the compilation. ``run(graph, compilation)`` returns another graph, or the
    same one if there is nothing to do. A ``required`` pass can't be skipped. A pass runs until
    nothing changes, at most ``rounds`` times."""

    name: str
    run: Callable[[IR, Compilation], IR]
    required: bool = False
    rounds: int = 1

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"{self.name!r} is no name for a pass: {_NAME.pattern} is expected")


def check_skipped(skip: Collection[str], passes: Iterable[Pass[Any]]) -> None:
    """ValueError if ``skip`` names a pass that is not among ``passes`` or is required."""
    required = {p.name: p.required for p in passes}
    optional = ", ".join(sorted(name for name, needed in required.items() if not needed))
    for name in skip:
        if name not in required:
            raise ValueError(
                f"skip_passes: no pass is called {name!r}{nearest(name, required)}; one of "
                f"{optional}"
            )
        if required[name]:
            raise ValueError(f"skip_passes: {name} can't be left out; one of {optional}")


def run_passes(
    passes: Iterable[Pass[IR]],
    graph: IR,
    compilation: Compilation,
    clean: Callable[[IR], IR] = lambda graph: graph,
) -> IR:
    """The graph after all passes that are not skipped. ``clean`` removes unused nodes after a pass
    that changed the graph."""
    _dump(graph, "input", compilation)
    _verify(graph, "input", compilation)
    for step in passes:
        if step.name in compilation.skip:
            if step.required:
                raise ValueError(f"{step.name} can't be left out")
            continue
        start, before = time.perf_counter(), graph
        graph = _run(step, graph, compilation, clean)
        seconds = compilation.notes.seconds
        seconds[step.name] = seconds.get(step.name, 0.0) + time.perf_counter() - start
        _dump(graph, step.name, compilation)
        if graph is not before:
            _verify(graph, step.name, compilation)
    return graph


def _run(
    step: Pass[IR], graph: IR, compilation: Compilation, clean: Callable[[IR], IR]
) -> IR:
    for _ in range(step.rounds):
        changed = step.run(graph, compilation)
        if changed is graph:
            return graph
        graph = clean(changed)
    if step.rounds > 1:
        message = f"still found something to do after {step.rounds} rounds"
        if compilation.verify:
            raise RuntimeError(f"pass {step.name} {message}")
        compilation.notes.add(step.name, message)
    return graph


def _dump(graph: VerifiableGraph, name: str, compilation: Compilation) -> None:
    if compilation.texts is not None:
        compilation.texts.write(name, str(graph))
    if compilation.after_pass is not None:
        compilation.after_pass(name, graph)


def _verify(graph: VerifiableGraph, name: str, compilation: Compilation) -> None:
    if not compilation.verify:
        return
    try:
        graph.verify()
    except (ValueError, TypeError) as error:
        raise ValueError(f"the graph after pass {name}: {error}") from error

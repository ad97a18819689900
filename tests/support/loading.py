"""Runs programs that were not made by a builder."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from webnn_vk.api import create_tensor
from webnn_vk.api.build import load_executable
from webnn_vk.api.ml_graph import MLGraph
from webnn_vk.compiler.kernels.lowered_graph import LoweredGraph
from webnn_vk.compiler.program import Constants, Program
from webnn_vk.compiler.program.assemble import assemble
from webnn_vk.runtime import setup
from webnn_vk.runtime.work import Run, Write


def stage_constants(monkeypatch: pytest.MonkeyPatch) -> None:
    """Constants reach the device through staging memory, as on devices whose memory the host can't
    access."""

    def write(storage: Any, data: Any, part: Any = None, fresh: bool = False) -> Write:
        return Write(storage, data, part=part)

    monkeypatch.setattr(setup, "Write", write)
    monkeypatch.setattr(create_tensor, "fill", lambda storage, data: False)


def load(context: Any, lowered: LoweredGraph) -> MLGraph:
    """The graph of ``lowered`` on a context, set up; raises the error of its set-up."""
    program, constants = assemble(lowered, context._state.device.profile)
    return set_up(context, program, constants)


def set_up(context: Any, program: Program, constants: Constants) -> MLGraph:
    """The graph of a program on a context; raises the error of its set-up."""
    executable = load_executable(context._state, program, constants)
    done = threading.Event()
    errors: list[Exception] = []

    def failed(error: Exception) -> None:
        errors.append(error)
        done.set()

    executable.set_up(context._state.stream, Run(done.set, failed))
    assert done.wait(60)
    error = executable.setup_error() or (errors[0] if errors else None)
    if error is not None:
        raise error
    graph = MLGraph(context._state, executable, program.report)
    context._state.register(graph)
    return graph

"""Graphs that were built, read back with their weights."""

import numpy as np
import pytest

from scripts.generate.pictures import compiler
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder
from webnn_vk.api.builder import graph_of
from webnn_vk.api.graph_source import with_weights
from webnn_vk.compiler.program import DispatchStep, Target, compile_program


def dispatches(graph):
    """The graph's source for a GPU."""
    program, _ = compile_program(graph, Target(stored_profile("amd_navi31")))
    return [
        (step.spec, step.constants, step.groups)
        for step in program.device_steps if isinstance(step, DispatchStep)
    ]


def test_a_graph_read_back_is_compiled_as_it_was_described(cpu_context, monkeypatch):
    """A graph whose weights change: they are folded, and packed for kernels."""
    built = compiler.network(cpu_context).result()
    monkeypatch.setattr(MLGraphBuilder, "build", lambda builder, outputs: graph_of(outputs))
    described = compiler.network(cpu_context)
    read = with_weights(built, "test")
    kept = [value.data for value in described.constants()]
    found = [value.data for value in read.constants()]
    assert all(array is not None for array in found)
    for array, weights in zip(found, kept, strict=True):
        np.testing.assert_array_equal(array, weights)
    assert {node.device for node in read.nodes} == {""}
    assert dispatches(read) == dispatches(described)


def test_what_is_no_graph_is_refused(cpu_context):
    with pytest.raises(TypeError, match="an MLGraph"):
        with_weights(3, "test")

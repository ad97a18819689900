"""The library's copies of constants leave host memory once a graph is built, except those that CPU
steps read, which are freed with the graph."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import numpy as np
import pytest

import webnn_vk
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from webnn_vk import MLGraphBuilder, Settings


def build(context):
    """A graph of two constants, the operands, and weak references to the library's two arrays."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [2, 8]})
    w = builder.constant(np.full((8, 8), 0.5, np.float32))
    s = builder.constant(np.arange(8, dtype=np.float32))
    copies = [weakref.ref(owner(builder._values[operand._number].data)) for operand in (w, s)]
    assert all(copy() is not None for copy in copies)
    y = builder.mul(builder.tanh(builder.matmul(x, w)), s)
    graph = builder.build({"y": y}).result()
    return graph, (builder, x, w, s, y), copies


def owner(array):
    """The array that owns the memory of the view ``array``."""
    while isinstance(array.base, np.ndarray):
        array = array.base
    assert array.flags.owndata
    return array


def alive(copies):
    gc.collect()
    return [copy() is not None for copy in copies]


@pytest.mark.parametrize("skipped", [(), ("fuse", "fold")])
def test_nothing_keeps_the_copies(skipped):
    require_vulkan()
    settings = replace(Settings.from_environment(), device="vulkan", skip_passes=skipped)
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        graph, operands, copies = build(context)
        # The user's operands are alive and keep their descriptors, but not the data.
        assert [o.shape for o in operands[1:]] == [(2, 8), (8, 8), (8,), (2, 8)]
        assert alive(copies) == [False, False]
        got = context.compute(graph, {"x": np.ones((2, 8), np.float32)})["y"]
        assert_allclose(got, np.tile(np.tanh(4) * np.arange(8), (2, 1)), rtol=1e-5)


def test_what_the_cpu_reads_stays_with_the_graph():
    require_vulkan()
    settings = replace(Settings.from_environment(), device="vulkan", force_cpu=("mul",))
    with webnn_vk.ml.create_context(settings=settings).result() as context:
        graph, _operands, copies = build(context)
        assert alive(copies) == [False, True]
        got = context.compute(graph, {"x": np.ones((2, 8), np.float32)})["y"]
        assert_allclose(got, np.tile(np.tanh(4) * np.arange(8), (2, 1)), rtol=1e-5)
        graph.destroy()
        del graph
        context.fence().wait()
        assert alive(copies) == [False, False]


def test_the_cpu_device_keeps_them_as_long_as_the_graph(cpu_context):
    graph, _operands, copies = build(cpu_context)
    assert alive(copies) == [True, True]
    got = cpu_context.compute(graph, {"x": np.ones((2, 8), np.float32)})["y"]
    assert_allclose(got, np.tile(np.tanh(4) * np.arange(8), (2, 1)), rtol=1e-5)
    graph.destroy()
    del graph
    cpu_context.fence().wait()
    assert alive(copies) == [False, False]


def test_a_builder_that_failed_can_go_on(cpu_context):
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": "float32", "shape": [2]})
    y = builder.add(x, builder.constant(np.ones(2, np.float32)))
    with pytest.raises(TypeError, match="is an input or a constant"):
        builder.build({"x": x}).result()
    graph = builder.build({"y": y}).result()
    assert cpu_context.compute(graph, {"x": np.ones(2, np.float32)})["y"].tolist() == [2, 2]

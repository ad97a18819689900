"""Epilogues that are written in one way, so that the shader archive has them."""

from __future__ import annotations

import pytest

from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import stored_profile
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.program import Target, compile_program


@pytest.mark.parametrize("swapped", [False, True])
def test_both_orders_of_an_addition_are_one_kernel(swapped: bool) -> None:
    emit = Emitter()
    x, z = graph_input("x", (64, 64)), graph_input("z", (64, 64))
    product = emit.matmul(x, x)
    graph = graph_of(emit, {"y": emit.add(*((z, product) if swapped else (product, z)))}, x, z)
    program, _ = compile_program(graph, Target(stored_profile("llvmpipe")))
    (spec,) = program.kernels
    assert spec.option("epilogue") == (("float32", "v"), ("float32", "w_add(t0, v_e0)"))

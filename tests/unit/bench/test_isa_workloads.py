"""The products in the workloads for which peers are captured."""

from dataclasses import replace

import pytest

from bench.isa import graphs
from bench.isa.bound import winograd
from bench.isa.workloads import WORKLOADS, elements, layers, multiply_adds, steps
from tests.support.profiles import stored_profile
from webnn_vk.compiler.program import Target, compile_program


def test_products_of_bert():
    graph = graphs.described(WORKLOADS["bert_2l_128"])
    found = layers(graph)
    assert sum(each.multiply_adds for each in found) == 2 * (12 * 768**2 * 128 + 2 * 768 * 128**2)
    assert len(found) == 16 and elements(graph) == 0
    # The first node's queries, keys and values depend on nothing; scores depend on two of them.
    assert [each.needs for each in found[:4]] == [set(), set(), set(), {0, 1}]
    assert found[15].needs == set(range(15))


def test_products_of_convolutions():
    (plain,) = layers(graphs.described(WORKLOADS["conv3x3_56x56_64_64"]))
    assert plain.multiply_adds == 9 * 64 * 64 * 56 * 56 and plain.outputs == 64 * 56 * 56
    # Tiles of 6 × 6 give 4 × 4 outputs each.
    assert dict(plain.winograd)[6] == 36 * 64 * 64 * 14 * 14
    (depthwise,) = layers(graphs.described(WORKLOADS["dwconv3x3_112x112_32"]))
    assert depthwise.multiply_adds == 9 * 32 * 112 * 112 and not depthwise.winograd


def test_workloads_without_products_read_elements():
    graph = graphs.described(WORKLOADS["softmax_12x128x128"])
    assert layers(graph) == [] and elements(graph) == 12 * 128 * 128


def test_dispatches_share_the_multiply_adds_of_a_workload():
    """A Winograd convolution has as many products as that takes, without the edges of tiles; the
    others share the rest in proportion to their operations."""
    graph = graphs.described(WORKLOADS["conv3x3_56x56_64_64"])
    products = layers(graph)
    program, _ = compile_program(graph, Target(stored_profile("amd_navi31")))
    dispatches = steps(program)
    assert [step.kernel for step in dispatches] == [
        "winograd_input", "winograd_product", "winograd_output"
    ]
    count = 36 * 64 * 64 * 14 * 14
    assert multiply_adds(dispatches, products) == [0, count, 0]
    plain = replace(dispatches[1], kernel="matmul_tiled", flops=300)
    other = replace(plain, flops=100)
    ragged = replace(dispatches[1], flops=2 * count + 1000)
    smaller = replace(products[0], winograd=winograd(64, 64, 40, 40))
    given = [replace(products[0], multiply_adds=800, winograd=()), smaller, products[0]]
    assert multiply_adds([plain, ragged, other], [given[0], given[1]]) == [
        600, dict(smaller.winograd)[6], 200
    ]
    # Of the possible ones, the largest.
    assert multiply_adds([ragged], given)[0] == count
    with pytest.raises(ValueError, match="4x4"):
        multiply_adds([ragged], given[:1])

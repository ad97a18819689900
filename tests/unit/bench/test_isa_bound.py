"""The lower bound of a workload's time, from small listings: the cost of a loop, and which products
it computes."""

import pytest

from bench.isa.bound import Chip, Cost, Dispatch, Layer, attributed, bound, cost, judged, winograd
from webnn_vk.codegen.isa.listing import mix, parse

#: One cycle of a unit: 4 lanes, 8 bytes of LDS, 2 bytes of memory.
CHIP = Chip(units=2, gigahertz=1.0, lanes=4, lds=8, memory=2)
LOOP = """\
BB0:
	v_mov_b32_e32 v0, 0
BB1:
	buffer_load_dword v1, v0, s[4:7], 0 offen
	ds_read_b128 v[4:7], v2
	v_mul_f32_e32 v8, v1, v4
	v_fmac_f32_e32 v8, v1, v5
	v_fmac_f32_e32 v8, v1, v6
	v_fmac_f32_e32 v8, v1, v7
	s_cbranch_scc1 BB1
BB2:
	buffer_store_dword v8, v0, s[4:7], 0 offen
	s_endpgm
"""
STRAIGHT = """\
BB0:
	buffer_load_dwordx4 v[4:7], v0, s[4:7], 0 offen
	v_fma_f32 v8, v4, v5, v6
	v_fma_f32 v9, v4, v5, v6
	v_add_f32_e32 v9, v9, v9
	v_add_f32_e32 v9, v9, v9
	buffer_store_byte v9, v0, s[4:7], 0 offen
	s_endpgm
"""
PLAIN = """\
BB0:
	v_mov_b32_e32 v0, 0
BB1:
	buffer_load_dword v1, v0, s[4:7], 0 offen
	v_add_f32_e32 v2, v1, v2
	s_cbranch_scc1 BB1
BB2:
	s_endpgm
"""


def kernel(text):
    return judged(parse(text), CHIP)


def dispatch(text, groups=(1, 1, 1), local=(8, 1, 1), multiply_adds=0):
    return Dispatch(kernel(text), groups, local, multiply_adds)


def test_what_a_lane_costs():
    assert cost(mix(parse(STRAIGHT)), CHIP) == Cost(4 / 4, 0, (16 + 4) / 2)
    assert Cost(1, 2, 3).cycles == 3 and Cost(1, 4, 3).port == "lds"
    assert Cost(1, 2, 3) + Cost(1, 1, 1) == Cost(2, 3, 4)


def test_a_multiply_add_costs_its_part_of_the_loop():
    found = kernel(LOOP)
    # The chain's first multiplication is one of its four.
    assert found.looped and found.multiply_adds == 4
    assert found.per_fma == Cost(4 / 4 / 4, 16 / 8 / 4, 4 / 2 / 4)
    assert found.share == 3 / 6
    # Each instruction once, including those before and after the loop.
    assert found.once == Cost(5 / 4, 2, 4)
    assert found.repeated == ((Cost(1, 2, 2), 4),)


def test_without_a_loop_the_whole_kernel_counts():
    found = kernel(STRAIGHT)
    assert not found.looped and found.multiply_adds == 2
    assert found.per_fma == Cost(1 / 2, 0, 5) and found.share == 2 / 6
    assert kernel(PLAIN).multiply_adds == 0 and kernel(PLAIN).per_fma == Cost()


def test_products_are_bound_by_their_multiply_adds():
    done = bound([dispatch(LOOP, (3, 1, 1), multiply_adds=4000)], CHIP)
    # 0.5 cycles each, on 2 units at 1 GHz: 1 µs; of 3 workgroups one unit has 2.
    assert done.products == done.all == pytest.approx(1.0)
    assert done.whole == pytest.approx(4 / 3)
    assert (done.port, done.share, done.workgroups, done.dispatches) == ("lds", 0.5, 3, 1)


def test_other_kernels_run_once_for_each_invocation():
    done = bound([dispatch(STRAIGHT, multiply_adds=16), dispatch(STRAIGHT)], CHIP)
    # 8 invocations of 10 cycles.
    assert done.products == pytest.approx(80 / 2000) and done.all == pytest.approx(160 / 2000)
    assert done.port == "memory"


def test_loops_turn_as_often_as_elements_take():
    once = bound([dispatch(PLAIN)], CHIP).all
    assert once == pytest.approx(8 * 2 / 2000)
    # 100 elements are one iteration for 8 and 92 more.
    assert bound([dispatch(PLAIN)], CHIP, elements=100).all == pytest.approx(100 * 2 / 2000)
    assert bound([dispatch(PLAIN)], CHIP, elements=4).all == once


def test_layers_find_their_dispatches():
    """In their order, skipping dispatches with fewer invocations than there are sums."""
    layers = [Layer(1000, 32), Layer(500, 8, frozenset({0}))]
    norm = dispatch(LOOP, local=(1, 1, 1))
    done = attributed(layers, [norm, dispatch(LOOP), dispatch(PLAIN), dispatch(LOOP)])
    assert [d.multiply_adds for d in done] == [0, 1000, 0, 500]
    assert attributed(layers, [norm, dispatch(LOOP)]) is None
    assert attributed([], [norm]) == [norm]


def test_independent_layers_may_change_places():
    """Of two possible next products, a dispatch computes the one with as many sums as it has."""
    layers = [Layer(100, 4), Layer(300, 32)]
    order = [dispatch(LOOP), dispatch(LOOP, local=(1, 1, 1))]
    assert [d.multiply_adds for d in attributed(layers, order)] == [300, 100]
    apart = [Layer(100, 4), Layer(300, 32, frozenset({0}))]
    assert attributed(apart, order) is None


def test_without_a_loop_a_dispatch_multiplies_what_it_says():
    """Half of them may be computed in another way."""
    assert attributed([Layer(32, 1)], [dispatch(STRAIGHT)])[0].multiply_adds == 32
    assert attributed([Layer(33, 1)], [dispatch(STRAIGHT)]) is None


def test_winograd_needs_fewer():
    """Tiles of 4 × 4 and 6 × 6: the number of products per tile tells which."""
    by_tiles = winograd(channels=2, outputs=3, height=8, width=5)
    assert by_tiles == ((4, 16 * 6 * 4 * 3), (6, 36 * 6 * 2 * 2), (8, 64 * 6 * 2 * 1))
    layer = Layer(9 * 6 * 40, 24, winograd=by_tiles)
    for deep, count in ((16, 1152), (36, 864), (5, 2160)):
        (done,) = attributed([layer], [dispatch(LOOP, (1, 1, deep))])
        assert done.multiply_adds == count

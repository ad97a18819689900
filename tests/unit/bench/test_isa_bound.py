"""The lower bound of a workload's time, from small listings: instructions × how often they run."""

import pytest

from bench.isa.bound import Chip, Cost, Dispatch, bound, cost, judged
from bench.isa.execution import Loop, Undetermined
from bench.isa.turns import executions
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
NESTED = """\
BB0:
	v_mov_b32_e32 v0, 0
BB1:
	ds_read_b32 v1, v2
BB2:
	v_fma_f32 v8, v4, v5, v6
	s_cbranch_scc1 BB2
BB3:
	s_cbranch_scc1 BB1
BB4:
	s_endpgm
"""
IDLE = """\
BB1:
	v_add_f32_e32 v9, v9, v9
	s_cbranch_scc1 BB1
"""


def module(*loops, work=(0, 0, 0)):
    return Loop(0, [*loops], turns=1, entered=1, work=work)


def loop(turns, *inner, work=(0, 0, 0), entered=1):
    return Loop(1, [*inner], turns=turns, entered=entered, work=work)


#: The module of `LOOP`, with ten turns.
TEN = module(loop(10, work=(40, 40, 10)))


def counts(text, of):
    return [count for _, count in executions(parse(text), of)]


def dispatch(text, of, groups=(1, 1, 1), local=(8, 1, 1)):
    return Dispatch(judged(parse(text), of, CHIP), groups, local)


def test_what_a_lane_costs():
    assert cost(mix(parse(STRAIGHT)), CHIP) == Cost(4 / 4, 0, (16 + 4) / 2)
    assert Cost(1, 2, 3).cycles == 3 and Cost(1, 4, 3).port == "lds"
    assert Cost(1, 2, 3) + Cost(1, 1, 1) == Cost(2, 3, 4)


def test_instructions_cost_as_often_as_they_run():
    found = judged(parse(LOOP), TEN, CHIP)
    # The loop: 4 in the vector unit, 16 bytes of LDS, 4 of memory; besides 1, and 4 bytes.
    assert found.one == Cost(10 * 4 / 4 + 1 / 4, 10 * 16 / 8, 10 * 4 / 2 + 4 / 2)
    assert found.multiply_adds == 30 and found.share == 30 / (10 * 6 + 2)
    straight = judged(parse(STRAIGHT), module(work=(2, 0, 4)), CHIP)
    assert straight.one == Cost(1, 0, 10) and straight.multiply_adds == 2


def test_a_bound_is_of_the_port_that_takes_longest():
    done = bound([dispatch(LOOP, TEN, (3, 1, 1))], CHIP)
    # 24 invocations of 22 cycles of memory, on 2 units at 1 GHz; of 3 workgroups one unit has 2.
    assert done.all == pytest.approx(24 * 22 / 2000)
    assert done.whole == pytest.approx(done.all * 4 / 3)
    assert (done.port, done.share, done.workgroups, done.dispatches) == ("memory", 30 / 62, 3, 1)
    both = bound([dispatch(LOOP, TEN), dispatch(STRAIGHT, module())], CHIP)
    assert both.all == pytest.approx((8 * 22 + 8 * 10) / 2000)


def test_loops_of_the_listing_are_those_of_the_module_that_are_not_unrolled():
    """The number of multiplications says which."""
    small, large = loop(4, work=(16, 0, 0)), loop(32, work=(32, 32, 0))
    assert counts(LOOP, module(small, loop(10, work=(40, 40, 10)))) == [1, 1, 10]
    assert counts(LOOP, module(loop(10, work=(40, 40, 10)), small)) == [1, 1, 10]
    # An inner loop of 4 is unrolled into the outer one of 10.
    inside = loop(40, work=(40, 40, 10), entered=10)
    assert counts(LOOP, module(loop(10, inside))) == [1, 1, 10]
    assert counts(NESTED, module(loop(8, large, work=(0, 8, 0)))) == [1, 1, 8, 8, 32]
    # A loop that never runs costs nothing.
    assert counts(LOOP, module(loop(0, work=(0, 0, 0)))) == [1, 1, 0]


def test_copies_of_an_inner_loop_share_its_turns():
    text = LOOP.replace("BB1", "BB5").replace("BB2", "BB6") + LOOP.replace("BB0", "BB9")
    twice = loop(20, work=(80, 80, 20), entered=2)
    assert counts(text, module(loop(2, twice))) == [1, 1, 1, 1, 10, 10]


def test_what_can_not_be_told_is_said():
    with pytest.raises(Undetermined, match="no match of its loops"):
        executions(parse(LOOP), module())
    with pytest.raises(Undetermined, match="multiply 900% more or less often"):
        executions(parse(LOOP), module(loop(100, work=(40, 40, 10))))
    with pytest.raises(Undetermined, match="can't be told"):
        executions(parse(IDLE), module(loop(10), loop(20)))
    # Where the ways hardly differ, the shorter one is a bound.
    assert counts(IDLE, module(loop(10), loop(11))) == [10]

from hypothesis import given
from hypothesis import strategies as st

from webnn_vk.support.integers import ceil_divide, padded, round_up


@given(st.integers(-(2**70), 2**70), st.integers(1, 2**40))
def test_rounding_up(number, divisor):
    quotient = ceil_divide(number, divisor)
    assert divisor * (quotient - 1) < number <= divisor * quotient
    assert round_up(number, divisor) == divisor * quotient


def test_what_values_occupy():
    assert [padded(n) for n in (0, 1, 16, 17, 32)] == [16, 16, 16, 32, 32]

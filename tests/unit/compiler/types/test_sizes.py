"""Sizes that are known at dispatch: a function traced at one example agrees with the plain function
wherever its guards hold."""

from __future__ import annotations

import random

import pytest

from webnn_vk.compiler.types.expressions import Expressions
from webnn_vk.compiler.types.sizes import Size, Trace, preferring

LOW = {"n": 1, "m": 2}
HIGH = {"n": 40, "m": 30}


def traced(**examples):
    expressions = Expressions()
    for name in examples:
        expressions.dimension(name, LOW[name], HIGH[name])
    trace = Trace(expressions, examples)
    return trace, [trace.named(name) for name in examples]


def terms(value):
    return value.terms if isinstance(value, Size) else value


def program(seed, n, m):
    """Random arithmetic: the numbers computed, and the decisions taken on the way."""
    pick, numbers, decisions = random.Random(seed), [n, m, 3, 4], []
    for _ in range(14):
        a, b = pick.choice(numbers), pick.choice(numbers)
        match pick.choice(("+", "-", "*", "//", "%", "<", "==", "/", "max", "up", "index")):
            case "+":
                numbers.append(a + b)
            case "-":
                numbers.append(a - b)
            case "*":
                numbers.append(a * b)
            case "//" if b != 0:
                numbers += divmod(a, b)
            case "%" if b != 0:
                numbers.append(a % b)
            case "<":
                decisions.append(bool(a < b))
            case "==":
                decisions.append(bool(a == b))
            case "/" if b != 0:
                decisions.append(bool(a / b < 1.5 * b))
            case "max":
                numbers.append(max(a, b))
            case "up":
                numbers.append(-(-a // 4) * 4)
            case "index" if pick.random() < 0.1:
                numbers.append(len(range(min(abs(a), 9))))
    return numbers, decisions


def test_a_trace_agrees_with_the_plain_function():
    shapes = 0
    for seed in range(150):
        pick = random.Random(-seed)
        examples = {"n": pick.randint(1, 40), "m": pick.randint(2, 30)}
        trace, sizes = traced(**examples)
        numbers, decisions = program(seed, *sizes)
        values = trace.expressions.values
        results = [terms(number) for number in numbers]
        assert trace.at(values([*examples.values()]), results) is not None
        for _ in range(60):
            n, m = pick.randint(1, 40), pick.randint(2, 30)
            if (got := trace.at(values([n, m]), results)) is not None:
                shapes += 1
                assert (got, decisions) == program(seed, n, m), (seed, n, m, trace.guards)
    assert shapes > 2000  # otherwise the guards are too narrow to be of use


@pytest.mark.parametrize("what, plain", [
    (lambda n, m: (n * 4 + 3) // 4, "n"),
    (lambda n, m: (n * 4 + 3) % 4, "3"),
    (lambda n, m: (n * m * 6) // (n * 2), "3*m"),
    (lambda n, m: (n + m) - m, "n"),
    (lambda n, m: (32 * n) % (384 * n), "32*n"),
    (lambda n, m: n * 0, "0"),
])
def test_sums_are_in_normal_form(what, plain):
    trace, sizes = traced(n=5, m=7)
    assert str(what(*sizes)) == plain
    assert not trace.guards


@pytest.mark.parametrize("decide, holds", [
    (lambda n, m: n * m >= 2, True),
    (lambda n, m: n * m - n > 0, True),
    (lambda n, m: n == n + 1, False),
    (lambda n, m: n * 4 % 4 == 0, True),
    (lambda n, m: n > 40, False),
    (lambda n, m: 2 * n == 7, False),
])
def test_what_bounds_decide_needs_no_guard(decide, holds):
    trace, sizes = traced(n=5, m=7)
    assert decide(*sizes) is holds
    assert not trace.guards


def test_a_conversion_accepts_only_the_example():
    trace, (n, m) = traced(n=5, m=7)
    assert [*range(n)] == [0, 1, 2, 3, 4]
    values = trace.expressions.values
    assert trace.at(values([5, 9]), [m.terms]) == [9]
    assert trace.at(values([6, 9]), [m.terms]) is None


def test_preferences_set_no_guards():
    trace, (n, m) = traced(n=5, m=7)
    with preferring():
        assert n < 10 and m / 2 > 1.0
    assert not trace.guards
    values = trace.expressions.values
    assert trace.suits(values([9, 3]))
    assert not trace.suits(values([10, 7])) and not trace.suits(values([5, 2]))


def test_guards_of_products_bound_larger_products():
    trace, (n, m) = traced(n=5, m=7)
    assert n * m <= 100
    assert trace.interval((n * m * 3).terms)[1] == 300
    assert trace.interval((n * n * m).terms)[1] == 4000


def test_scaled_sizes_are_rounded_as_single_floats():
    trace, (n, _) = traced(n=10, m=7)
    scaled = n.scaled(0.7)
    assert scaled.value == 7 and trace.interval(scaled.terms) == (0, 28)
    assert trace.at(trace.expressions.values([20, 7]), [scaled.terms]) == [14]
    assert not trace.guards


def test_guards_make_plain_numbers():
    trace, (n, m) = traced(n=5, m=7)
    assert n == 5
    assert n * 2 + 1 == 11 and type(n * 2 + 1) is int and type(n * m) is Size
    unfolded = Trace(trace.expressions, trace.examples, folds=False)
    assert unfolded.named("n") == 5 and type(unfolded.named("n") * 2) is Size


def test_a_name_has_one_pair_of_bounds():
    expressions = Expressions()
    expressions.dimension("n", 1, 8)
    with pytest.raises(TypeError, match="dimension 'n' has 1 … 9 elements here, and 1 … 8 where"):
        expressions.dimension("n", 1, 9)

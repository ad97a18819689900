"""Huge and odd numbers in every option: a TypeError that names operator and label, or a graph.

Valid uses are drawn from the records, as the differential tests draw them, and then one or more of
their numbers replaced. What is accepted and small is built, computed on both devices and compared.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.differential.drafting import examples
from tests.differential.example import Example
from tests.differential.values import SMALL
from tests.graphs import stored_profile
from webnn_vk import MLContext, MLGraphBuilder, MLOperand
from webnn_vk.data_types import MLOperandDescriptor, check_dimensions
from webnn_vk.ops import OPERATORS
from webnn_vk.ops.arguments import I32, U32, Argument, Double, Number, SequenceOf, Shape, U32OrShape
from webnn_vk.program import Target, compile_program

INTEGERS = (
    0, 1, 2, 3, 255, 8192, 8193, 46341, 2**16, 2**20 + 1, 2**30, 2**31 - 2, 2**31 - 1, 2**31,
    2**31 + 1, 2**32 - 2, 2**32 - 1, 2**32, 2**63, 2**64, 10**5000, -1, -(2**31), -(2**31) - 1,
)
DOUBLES = (
    0.0, -0.0, -1.0, 5e-324, 1e-46, 1e-30, 0.999, 1e4, 1e9, 2.0**31, 1e30, 3e38, 1e39, 1e308,
    math.nan, math.inf, -math.inf, 10**5000, 2**31,
)
_MANY = (Shape, U32OrShape)
# Elements of what is compiled.
_SMALL = 1 << 16
# Seconds that a builder call may take, on a busy machine too.
_PROMPT = 1.0


def _is_integers(kind: Argument) -> bool:
    return kind in _MANY or (isinstance(kind, SequenceOf) and kind.item is U32)


def _is_numeric(kind: Argument) -> bool:
    many = kind in _MANY or (isinstance(kind, SequenceOf) and kind.item in (U32, Double))
    return many or kind in (U32, I32, Double, Number)


NUMERIC = {
    name: found
    for name, record in OPERATORS.items()
    if (found := [p for p in record.arguments if _is_numeric(p.argument)])
}


@st.composite
def odd_uses(draw: Callable[[Any], Any], name: str) -> Example:
    """A use of an operator that was valid before some numbers of its arguments were replaced."""
    example = draw(examples(name, flavours=(SMALL,)))
    arguments = dict(example.arguments)
    for p in draw(st.lists(st.sampled_from(NUMERIC[name]), min_size=1, max_size=3, unique=True)):
        arguments[p.name] = draw(_odd(p.argument, arguments.get(p.name), example))
    return replace(example, arguments=arguments)


def _odd(kind: Argument, value: Any, example: Example) -> st.SearchStrategy[Any]:
    if not _is_integers(kind) and not isinstance(kind, SequenceOf):
        return st.sampled_from(INTEGERS if kind in (U32, I32) else DOUBLES)
    numbers = st.sampled_from(INTEGERS if _is_integers(kind) else DOUBLES)
    if isinstance(value, int):
        return numbers | st.integers(1, 10_000).map(lambda n: [1] * n)
    rank = next((a.ndim for a in example.operands.values() if not isinstance(a, list)), 2)
    length = len(value) if value else None
    lengths = st.just(length) if length else st.sampled_from([2, 4, rank])

    def some(old: Any) -> st.SearchStrategy[list[Any]]:
        # Most numbers stay small, or nothing would get past the first check.
        small = st.sampled_from((1, 1, 2, 3)) if _is_integers(kind) else st.sampled_from((1.0, 2.0))
        return st.lists(numbers | small, min_size=old, max_size=old)

    lists = lengths.flatmap(some)
    if value:
        at = st.integers(0, len(value) - 1)
        one = st.builds(lambda i, n: [*value[:i], n, *value[i + 1 :]], at, numbers)
        lists = one | lists
    long = st.builds(lambda n, count: [n] * count, numbers, st.sampled_from([0, 9, 20_000]))
    return lists | lists | lists | long


def accepted(context: MLContext, example: Example) -> tuple[MLGraphBuilder, list[MLOperand]] | None:
    """The outputs of a use, or None where it is refused as it should be."""
    builder = MLGraphBuilder(context)
    example = replace(example, arguments={**example.arguments, "label": "the label"})
    begun = time.perf_counter()
    try:
        made, _ = example.add_to(builder, "")
    except TypeError as error:
        assert str(error).startswith(f"{example.operator} [the label]: "), error
        made = None
    assert time.perf_counter() - begun < _PROMPT
    if made is None:
        return None
    limit = context.op_support_limits()["max_tensor_byte_length"]
    for operand in made:
        descriptor = MLOperandDescriptor(operand.data_type, operand.shape)
        assert check_dimensions(descriptor, limit) is None
    return builder, made


PROFILES = [stored_profile(name) for name in ("llvmpipe", "amd_rdna3", "adreno_minimum")]


@pytest.mark.parametrize("name", sorted(NUMERIC))
def test_refused_by_name_or_compiled(cpu_context: MLContext, name: str) -> None:
    @settings(suppress_health_check=list(HealthCheck), database=None, print_blob=False)
    @given(odd_uses(name))
    def check(example: Example) -> None:
        found = accepted(cpu_context, example)
        event("refused" if found is None else "accepted")
        if found is None or sum(math.prod(o.shape) for o in found[1]) > _SMALL:
            return
        builder, made = found
        graph = builder._graph({f"{i}": operand for i, operand in enumerate(made)})
        for profile in PROFILES:
            compile_program(graph, Target(profile, fold=False))
        # The reference finds a result too, without laying out what no tensor holds.
        inferred, record = example.inferred(), OPERATORS[name]
        operands = {p.name: example.operands.get(p.name) for p in record.operands}
        record.evaluate(inferred.outputs, operands, inferred.arguments)

    check()

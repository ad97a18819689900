"""An internal operator of the compiler that exists while a test needs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from webnn_vk.compiler.ops import COMPILER_OPERATORS, Operator
from webnn_vk.compiler.ops.arguments import Bool, Operand
from webnn_vk.compiler.ops.lowering import Elementwise
from webnn_vk.compiler.ops.record import Check, Like, Limits, compiler_operator
from webnn_vk.compiler.types.data_types import FLOAT_TYPES


@contextmanager
def registered_test_operator() -> Iterator[Operator]:
    """``test_squared_sum(a, b, *, negative=False)``: (a + b)², or its negative."""

    @compiler_operator(a=Limits(FLOAT_TYPES), b=Like("a"), output=Like("a"))
    def test_squared_sum(check: Check, a: Operand, b: Operand, *, negative: Bool = False):
        """(a + b)², or its negative."""
        check.same_type(a=a, b=b)
        return type(a)(a.data_type, check.broadcast(a=a, b=b))

    test_squared_sum.lowers_to(
        Elementwise(
            variants=lambda operands, output, arguments: (
                f"{'-' if arguments['negative'] else ''}(({{a}} + {{b}}) * ({{a}} + {{b}}))"
            ),
            flops=2,
        )
    )

    @test_squared_sum.reference
    def _(out, a, b, negative):
        return (a + b) * (a + b) * (-1 if negative else 1)

    try:
        yield test_squared_sum
    finally:
        del COMPILER_OPERATORS["test_squared_sum"]

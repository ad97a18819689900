"""Huge and odd numbers in every option: a TypeError that names operator and label, or a graph.

Valid uses are drawn from the records, as in the differential tests, and then one or more of their
numbers are replaced. Small accepted uses are built, computed on both devices and compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Example
from tests.conformance.differential.values import SMALL
from tests.support.counting import calls_of
from tests.support.profiles import stored_profile
from webnn_vk import MLContext, MLGraphBuilder, MLOperand
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.ops.arguments import (
    I32,
    U32,
    Argument,
    Double,
    Number,
    SequenceOf,
    Shape,
    U32OrShape,
)
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.types.data_types import MLOperandDescriptor, check_dimensions

INTEGERS = (
    0, 1, 2, 3, 255, 8192, 8193, 46341, 2**16, 2**20 + 1, 2**30, 2**31 - 2, 2**31 - 1, 2**31,
    2**31 + 1, 2**32 - 2, 2**32 - 1, 2**32, 2**63, 2**64, 10**5000, -1, -(2**31), -(2**31) - 1,
)
DOUBLES = (
    0.0, -0.0, -1.0, 5e-324, 1e-46, 1e-30, 0.999, 1e4, 1e9, 2.0**31, 1e30, 3e38, 1e39, 1e308,
    math.nan, math.inf, -math.inf, 10**5000, 2**31,
)
_MANY = (Shape, U32OrShape)
# Maximum number of elements that are compiled.
_SMALL = 1 << 16
# Calls that a use of an operator may take: 420,000 were seen, for a list of 60,000 numbers.
_FEW_CALLS = 1_500_000


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
        # Most numbers stay small, or nothing would pass the first check.
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
    """The outputs of a use, or None if it is refused as it should be."""
    builder = MLGraphBuilder(context)
    example = replace(example, arguments={**example.arguments, "label": "the label"})
    made: list[MLOperand] | None = None

    def use() -> None:
        nonlocal made
        try:
            made, _ = example.add_to(builder, "")
        except TypeError as error:
            assert str(error).startswith(f"{example.operator} [the label]: "), error

    assert calls_of(use) < _FEW_CALLS
    if made is None:
        return None
    limit = context.op_support_limits()["max_tensor_byte_length"]
    for operand in made:
        descriptor = MLOperandDescriptor(operand.data_type, operand.shape)
        assert check_dimensions(descriptor, limit) is None
    return builder, made


PROFILES = [stored_profile(name) for name in ("llvmpipe", "amd_navi31", "adreno_minimum")]


@pytest.mark.full
@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", sorted(NUMERIC))
def test_refused_by_name_or_compiled(cpu_context: MLContext, name: str) -> None:
    @settings(
        max_examples=max(20, settings.default.max_examples // 4), database=None, print_blob=False,
        suppress_health_check=list(HealthCheck),
    )
    @given(odd_uses(name))
    def check(example: Example) -> None:
        found = accepted(cpu_context, example)
        event("refused" if found is None else "accepted")
        if found is None or sum(math.prod(o.shape) for o in found[1]) > _SMALL:
            return
        builder, made = found
        graph = builder._graph({f"{i}": operand for i, operand in enumerate(made)})
        for profile in PROFILES:
            compile_program(graph, Target(profile, skip=("fold",)))
        # The reference computes a result too, without materialising the padded tensor.
        inferred, record = example.inferred(), OPERATORS[name]
        operands = {p.name: example.operands.get(p.name) for p in record.operands}
        record.evaluate(inferred.outputs, operands, inferred.arguments)

    check()


#: (operator, shapes of the operands, arguments, what the message says): sizes that are too large.
REFUSED = [
    # spec: §8.9.10, calculate conv output size: intermediate values are not checked
    ("conv2d", [(1, 1, 4, 4), (1, 1, 1, 1)],
     {"padding": [2**31 - 4, 0, 0, 0], "strides": [9**9, 1]}, r"padded extents \[2147483648, 4\]"),
    ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)],
     {"padding": [2**32 - 1, 2**32 - 1, 0, 0], "strides": [2**31, 1]}, "padded extents"),
    ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)], {"padding": [0, 2**31, 0, 0], "strides": [2**31, 1]},
     "padded extents"),
    ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)],
     {"padding": [0, 2**32 - 1, 0, 0], "dilations": [2**31, 1], "strides": [9**9, 1]},
     "padded extents"),
    ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)], {"padding": [2**31, 0, 0, 0]}, "output of height"),
    ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)], {"dilations": [2**32 - 1] * 2}, "output of height"),
    # Each extent is a valid dimension, but the padded input has too many elements.
    ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)], {"padding": [2**16 - 4, 0, 2**16 - 3, 0],
     "strides": [2**15, 2**15]}, r"padded extents \[65536, 65537\], 1 times: 4295032832 elements"),
    ("conv2d", [(2, 3, 4, 4), (1, 3, 2, 2)], {"padding": [2**16 - 4, 0, 2**15 - 4, 0],
     "strides": [2**15, 2**15]}, r"padded extents \[65536, 32768\], 6 times"),
    # spec: §8.9.11, calculate convtranspose output size
    ("conv_transpose2d", [(1, 1, 4, 4), (1, 1, 2, 2)],
     {"padding": [2**15, 2**15, 2**15, 2**15], "strides": [25_000, 25_000]},
     r"extents before the padding \[.*\] is cut off \[75002, 75002\], 1 times"),
    ("conv_transpose2d", [(1, 1, 2, 2), (1, 3, 2, 2)],
     {"padding": [2**15, 0, 2**15, 0], "strides": [40_000, 40_000]}, r"40002\], 3 times"),
    ("conv_transpose2d", [(1, 1, 4, 4), (1, 1, 2, 2)],
     {"padding": [2**32 - 1, 2**31 - 9, 0, 0], "strides": [2**31 - 1, 1]},
     "extents before the padding"),
    ("conv_transpose2d", [(1, 1, 4, 4), (1, 1, 2, 2)],
     {"padding": [2**31 - 9, 0, 0, 0], "dilations": [2**31, 1]}, "extents before the padding"),
    ("conv_transpose2d", [(1, 1, 2, 2), (1, 1, 1, 1)],
     {"strides": [2**31 - 2, 1], "padding": [9, 0, 0, 0], "output_padding": [1, 0]},
     "extents before the padding"),
    ("conv_transpose2d", [(1, 1, 2, 2), (1, 1, 1, 1)],
     {"strides": [2**31 - 2, 1], "padding": [9, 0, 0, 0], "output_sizes": [2**31 - 9, 2]},
     "extents before the padding"),
    ("conv_transpose2d", [(1, 1, 2, 2), (1, 1, 1, 1)], {"strides": [2**32 - 1, 1]}, "output of"),
    ("conv_transpose2d", [(1, 1, 2, 2), (1, 1024, 1, 1)], {"groups": 2**32 - 1}, "channels"),
    # spec: §8.9.37, steps 15 to 20
    ("max_pool2d", [(1, 1, 4, 4)], {"padding": [2**31 - 4, 0, 0, 0], "strides": [9**9, 1]},
     "padded extents"),
    ("average_pool2d", [(1, 2, 4, 4)],
     {"window_dimensions": [2, 2], "padding": [0, 2**16, 0, 2**16],
      "strides": [2**15] * 2}, r"padded extents would be \[65540, 65540\], 2 times"),
    ("max_pool2d", [(3, 1, 4, 4)], {"window_dimensions": [2, 2], "strides": [2**16, 2**16],
     "output_shape_rounding": "ceil"}, r"windows cover would be \[65538, 65538\], 3 times"),
    ("max_pool2d", [(1, 1, 4, 4)],
     {"window_dimensions": [2, 1], "padding": [2**31, 0, 0, 0], "dilations": [2**31, 1],
      "strides": [9**9, 1]}, "dilated windows"),
    ("average_pool2d", [(1, 1, 4, 4)],
     {"window_dimensions": [46341, 46341], "padding": [46341] * 4}, "elements of a window"),
    ("l2_pool2d", [(1, 1, 4, 4)],
     {"window_dimensions": [2**31 - 1, 2], "padding": [2**31 - 5, 0, 0, 0]},
     "elements of a window"),
    ("max_pool2d", [(1, 1, 4, 4)],
     {"window_dimensions": [2, 2], "strides": [2**32 - 1, 1], "output_shape_rounding": "ceil"},
     r"extents that the windows cover would be \[4294967297, 4\]"),
    ("max_pool2d", [(1, 1, 4, 4)],
     {"window_dimensions": [2, 2], "strides": [2**31 - 2, 1], "output_sizes": [2, 3]},
     "extents that the windows cover"),
    # spec: §8.9.36, §8.9.41, §8.9.53, §8.9.9, §8.9.19, §8.9.42: dimensions of the output
    ("pad", [(4,)], {"beginning_padding": [2**31 - 1], "ending_padding": [0]}, "2147483651"),
    ("resample2d", [(1, 1, 2, 2)], {"scales": [1e30, 1]}, "scales"),
    ("resample2d", [(1, 1, 2, 2)], {"scales": [math.nan, 1]}, "finite"),
    ("resample2d", [(1, 1, 2, 2)], {"scales": [1, math.inf]}, "finite"),
    ("resample2d", [(1, 1, 2, 2)], {"scales": [1e-46, 1]}, "valid dimensions"),
    ("resample2d", [(1, 1, 2, 2)], {"sizes": [2**31, 1]}, "valid dimensions"),
    ("resample2d", [(1, 1, 2, 2)], {"sizes": [2**16, 2**16]}, "elements"),
    ("tile", [(2**16, 2)], {"repetitions": [2**16, 1]}, "4294967296"),
    ("tile", [(2**15, 2)], {"repetitions": [1, 2**16]}, "elements"),
    ("expand", [(1, 1)], {"new_shape": [2**16, 2**16]}, "elements"),
    ("expand", [(1, 1)], {"new_shape": [2**32 - 1, 1]}, "dimension"),
    ("reshape", [(4,)], {"new_shape": [2**32 - 1, 4]}, "dimension"),
    # The element count and the byte length that follow from operands alone
    ("matmul", [(2**16, 1), (1, 2**15)], {}, "elements"),
    ("matmul", [(2**15, 1), (1, 2**15)], {}, "max_tensor_byte_length"),
    ("gemm", [(2**16, 1), (1, 2**15)], {}, "elements"),
    ("prelu", [(2**16, 1), (2**15,)], {}, "elements"),
    ("add", [(2**16, 1), (2**15,)], {}, "elements"),
    ("split", [(2**20,)], {"splits": 8193}, "8192"),
    ("split", [(2**20,)], {"splits": [1] * 20_000}, "8192"),
    ("arg_max", [(4,)], {"axis": 2**32 - 1}, "axis 4294967295"),
    ("cumulative_sum", [(4,)], {"axis": 2**32 - 1}, "axis 4294967295"),
    ("reduce_sum", [(4,)], {"axes": [0] * 60_000}, "duplicates"),
    ("reduce_sum", [(4,)], {"axes": [0] * 100_000}, "more than 65536 items"),
    ("triangular", [(4, 4)], {"diagonal": 2**31}, "outside"),
    ("slice", [(4,)], {"starts": [2**32 - 1], "sizes": [1]}, "exceeds the 4 elements"),
    ("slice", [(4,)], {"starts": [0], "sizes": [4], "strides": [2**32 - 1]}, "greater than"),
    ("pad", [(4,)], {"beginning_padding": [2**31], "ending_padding": [0], "mode": "reflection"},
     "to reflect"),
    ("clamp", [(4,)], {"min_value": 10**5000, "max_value": -(10**5000)}, "16610 bits"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shapes", "arguments", "message"), REFUSED)
def test_refused(
    cpu_context: MLContext, name: str, shapes: list, arguments: dict, message: str
) -> None:
    builder = MLGraphBuilder(cpu_context)
    operands = [
        builder.input(f"{i}", {"data_type": "float32", "shape": shape})
        for i, shape in enumerate(shapes)
    ]

    def use() -> None:
        with pytest.raises(TypeError, match=rf"^{name} \[the label\]: .*{message}"):
            getattr(builder, name)(*operands, **arguments, label="the label")

    assert calls_of(use) < _FEW_CALLS


@pytest.mark.parametrize(
    ("name", "shapes", "arguments", "shape"),
    [
        ("conv2d", [(1, 1, 4, 2), (1, 1, 1, 1)],
         {"padding": [2**31 - 5, 0, 0, 0], "strides": [9**9, 1]}, (1, 1, 6, 2)),
        ("conv2d", [(1, 1, 4, 4), (1, 1, 2, 2)],
         {"padding": [2**16 - 4, 0, 2**16 - 4, 0], "strides": [2**15] * 2}, (1, 1, 2, 2)),
        ("conv2d", [(1, 1, 4, 4), (1, 1, 1, 1)], {"strides": [2**32 - 1] * 2}, (1, 1, 1, 1)),
        ("max_pool2d", [(1, 1, 4, 4)],
         {"window_dimensions": [46340, 46340], "padding": [46340, 0, 46340, 0]}, (1, 1, 5, 5)),
        ("max_pool2d", [(1, 1, 4, 2)],
         {"window_dimensions": [1, 2], "strides": [2**31 - 2, 1], "padding": [0, 9**9, 0, 0],
          "output_shape_rounding": "ceil"}, (1, 1, 2, 1)),
        ("triangular", [(4, 4)], {"diagonal": 2**31 - 1}, (4, 4)),
        ("triangular", [(4, 4)], {"diagonal": -(2**31)}, (4, 4)),
        ("clamp", [(4,)], {"min_value": -(10**5000), "max_value": 10**5000}, (4,)),
        ("tile", [(2**15, 1)], {"repetitions": [1, 2**14 - 1]}, (2**15, 2**14 - 1)),
    ],
)  # fmt: skip
def test_accepted_at_the_limit(
    cpu_context: MLContext, name: str, shapes: list, arguments: dict, shape: tuple
) -> None:
    builder = MLGraphBuilder(cpu_context)
    operands = [
        builder.input(f"{i}", {"data_type": "float32", "shape": shape})
        for i, shape in enumerate(shapes)
    ]
    assert getattr(builder, name)(*operands, **arguments).shape == shape

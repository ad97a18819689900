"""The compiler's internal operators: known to graphs, texts, references and kernels, not to users.
"""

import numpy as np
import pytest
from hypothesis import assume, given, settings

from bench.isa.catalogue import planned
from scripts.generate import operator_table
from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.drafting import examples
from tests.support.compiler_operator import registered_test_operator
from tests.support.graphs import evaluate, graph_input, graph_of, read
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder
from webnn_vk.api.limits import op_support_limits
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.ops import ALL_OPERATORS, COMPILER_OPERATORS, OPERATORS
from webnn_vk.compiler.ops.arguments import Operand
from webnn_vk.compiler.ops.record import Like, Limits, compiler_operator, operator
from webnn_vk.compiler.passes import by_specification
from webnn_vk.compiler.passes.patterns import Op
from webnn_vk.compiler.passes.rewrite import apply_rewrites, rewrite
from webnn_vk.compiler.program import Target, compile_program
from webnn_vk.compiler.types.data_types import FLOAT_TYPES
from webnn_vk.runtime.cpu import CpuDevice
from webnn_vk.tools import operators as operators_tool

NAME = "test_squared_sum"


@pytest.fixture
def record():
    with registered_test_operator() as record:
        yield record


def test_users_do_not_meet_it(record, monkeypatch):
    # What devices can do takes seconds to find out, and names no operator.
    monkeypatch.setattr(operator_table, "on_vulkan", lambda name: {})
    assert NAME in COMPILER_OPERATORS and NAME in ALL_OPERATORS and NAME not in OPERATORS
    assert not hasattr(MLGraphBuilder, NAME)
    assert NAME not in op_support_limits(CpuDevice())
    assert NAME not in operator_table.page(operator_table.load_counts())
    assert NAME not in operators_tool.table()
    with pytest.raises(ValueError, match=f"no operator is called {NAME}"):
        compile_program(
            read("inputs { a: f32[2]; }", "y = relu(a);"),
            Target(stored_profile(), force_cpu=[NAME]),
        )
    own = {
        "attention", "block_matmul", "decode", "encode", "gelu_tanh", "gru_recurrence",
        "integer_matmul", "join_bits", "low_bits", "lstm_recurrence", "quantized_conv2d",
        "quantized_matmul", "repeat", "rms_normalization", "swish",
    }
    assert set(ALL_OPERATORS) == set(OPERATORS) | own | {NAME}


def test_it_is_gone_when_it_is_taken_out():
    assert NAME not in ALL_OPERATORS
    with pytest.raises(AttributeError, match=f"no operator is called {NAME}"):
        getattr(Emitter(), NAME)


def test_no_name_stands_for_two_operators(record):
    def relu(check, input: Operand):
        return check.same_as(input)

    def test_squared_sum(check, input: Operand):
        return check.same_as(input)

    for make, function in (
        (compiler_operator, relu),
        (compiler_operator, test_squared_sum),
        (lambda **limits: operator("§1", **limits), test_squared_sum),
    ):
        with pytest.raises(ValueError, match="the name is taken"):
            make(input=Limits(FLOAT_TYPES), output=Like("input"))(function)


def test_text_verifier_and_emitter_know_it(record):
    @settings(max_examples=30)
    @given(examples(NAME))
    def check(example):
        graph = example.graph()
        graph.verify()
        assert f" = {NAME}(" in str(graph)

    check()


def test_a_rewrite_may_introduce_it(record):
    @rewrite(Op("mul", a=Op("add", a="a", b="b", bind="s"), b=Op("add", bind="s")))
    def squared(match, emit):
        return emit.test_squared_sum(match["a"], match["b"])

    emit = Emitter()
    a, b = graph_input("a", (2, 3)), graph_input("b", (3,))
    s = emit.add(a, b, label="s")
    graph = graph_of(emit, {"y": emit.mul(s, s)}, a, b)
    done = apply_rewrites(graph, [squared])
    done.verify()
    assert [n.title for n in done.nodes] == [NAME]
    arrays = {"a": np.arange(6, dtype=np.float32).reshape(2, 3), "b": np.ones(3, np.float32)}
    np.testing.assert_array_equal(evaluate(done, **arrays)["y"], evaluate(graph, **arrays)["y"])
    for profile in (None, stored_profile()):
        report = compile_program(done, Target(profile))[0].report
        assert [s.operators for s in report.steps] == [(NAME,)]


@pytest.mark.parametrize("name", ["gelu_tanh", "rms_normalization", "swish"])
def test_they_are_what_they_are_taken_apart_into(name):
    @settings(max_examples=40, deadline=None)
    @given(examples(name))
    def check(example):
        # Halves are rounded after each operator, but in normalisation.
        assume(name == "rms_normalization" or example.operands["input"].dtype == np.float32)
        graph = example.graph()
        apart = by_specification(graph)
        assert {node.operator.name for node in apart.nodes} <= OPERATORS.keys()
        feeds = {key: example.operands[key] for key in graph.inputs}
        one, other = (list(evaluate(g, **feeds).values()) for g in (graph, apart))
        assert mismatch(example, other, one) is None, example.in_full()

    check()


def test_its_kernels_are_in_the_catalogue(record):
    profile = stored_profile()
    emit, a = Emitter(), graph_input("a", (2,), "float16")
    graph = graph_of(emit, {"y": getattr(emit, NAME)(a, a)}, a)
    (spec,) = compile_program(graph, Target(profile, skip=["fuse"]))[0].kernels
    assert spec in set(planned(profile.features, "elementwise"))
    del COMPILER_OPERATORS[NAME]
    assert spec not in set(planned(profile.features, "elementwise"))
    COMPILER_OPERATORS[NAME] = record


def test_the_public_interface_is_as_it_was():
    assert len(OPERATORS) == 95 and not COMPILER_OPERATORS.keys() & OPERATORS.keys()

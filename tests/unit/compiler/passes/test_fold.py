"""Constant folding: which results graphs may share."""

import numpy as np

from tests.support.graphs import graph_of
from webnn_vk.compiler.ir import Emitter, Value
from webnn_vk.compiler.passes.fold import fold_constants
from webnn_vk.compiler.passes.pipeline import Compilation
from webnn_vk.compiler.types.data_types import MLOperandDescriptor


def folded_key(key, operator="softmax", axis=0):
    data = np.arange(6, dtype=np.float32).reshape(2, 3)
    value = Value(MLOperandDescriptor("float32", (2, 3)), data=data, key=key)
    emit = Emitter()
    y = emit.softmax(value, axis) if operator == "softmax" else emit.exp(value)
    graph = graph_of(emit, {"y": emit.neg(y)})
    folded = fold_constants(graph, Compilation())
    assert not folded.nodes
    return folded.outputs["y"].key


def test_results_have_keys_where_operands_have():
    assert folded_key("a") == folded_key("a") is not None
    assert len({folded_key("a"), folded_key("b"), folded_key("a", axis=1),
                folded_key("a", "exp")}) == 4
    assert folded_key(None) is None

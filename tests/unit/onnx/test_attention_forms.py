"""The imported form of ONNX's attention operators, and of exporters' plain ones, becomes one
`attention` on GPUs, with the same results."""

import numpy as np
import pytest
from onnx import TensorProto, ValueInfoProto, helper

from tests.support.cases.exported_attention import exported, seen_by
from tests.support.discriminating import assert_allclose
from tests.support.graphs import evaluate, random_feeds
from tests.support.onnx_models import info, model
from tests.support.profiles import stored_profile
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ir import Graph
from webnn_vk.compiler.passes import (
    DEAD_CODE,
    FOLD,
    FUSE_ATTENTION,
    Compilation,
    remove_dead_code,
    run_passes,
)
from webnn_vk.onnx.importing import build_operands

# Operator, shapes of inputs (constants as arrays), attributes, remaining operators besides
# movements.
CASES = {
    "microsoft Attention": (
        "Attention", [(2, 3, 8), (8, 24), (24,)], {"num_heads": 2},
        ["matmul", "add", "split", "attention"],
    ),
    "MultiHeadAttention": (
        "MultiHeadAttention", [(2, 3, 8), (2, 4, 8), (2, 4, 8)], {"num_heads": 2}, ["attention"],
    ),
    "MultiHeadAttention with a padding mask": (
        "MultiHeadAttention",
        [(2, 3, 8), (2, 4, 8), (2, 4, 8), None, np.array([[1, 1, 1, 0], [1, 0, 0, 0]], np.int32)],
        {"num_heads": 2}, ["attention"],
    ),
    "GroupQueryAttention": (
        "GroupQueryAttention",
        [(1, 3, 32), (1, 3, 16), (1, 3, 16), None, None, np.array([2], np.int32),
         np.array(3, np.int32)],
        {"num_heads": 4, "kv_num_heads": 2}, ["attention"],
    ),
    "opset 23": ("", [(2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6)], {}, ["attention"]),
    "opset 23 with a mask": (
        "", [(2, 4, 3, 8), (2, 4, 5, 8), (2, 4, 5, 6), (3, 5)], {},
        ["reduce_max", "equal", "attention", "where"],
    ),
    "opset 23, causal": (
        "", [(2, 4, 3, 8), (2, 4, 3, 8), (2, 4, 3, 6)], {"is_causal": 1}, ["attention"],
    ),
    "opset 23, grouped heads": (
        "", [(2, 4, 3, 8), (2, 2, 5, 8), (2, 2, 5, 6)], {}, ["attention"],
    ),
    "opset 23, joined heads": (
        "", [(2, 3, 32), (2, 5, 32), (2, 5, 32)], {"q_num_heads": 4, "kv_num_heads": 4},
        ["attention"],
    ),
}


def imported(context, operator: str, inputs: list, attributes: dict, kind: int) -> Graph:
    names = [f"i{k}" if x is not None else "" for k, x in enumerate(inputs)]
    given = dict(zip(names, inputs, strict=True))
    proto = model(
        [helper.make_node(
            operator or "Attention", names, ["y"], domain="com.microsoft" if operator else "",
            **attributes,
        )],
        [info(name, x, kind) for name, x in given.items() if isinstance(x, tuple)],
        [ValueInfoProto(name="y")],
        {name: x for name, x in given.items() if isinstance(x, np.ndarray)},
        opset=17 if operator else 23, microsoft=bool(operator),
    )
    builder = MLGraphBuilder(context)
    return builder._graph(build_operands(proto, builder))


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("case", CASES)
def test_attention_operators(case, kind, cpu_context):
    operator, inputs, attributes, expected = CASES[case]
    graph = imported(cpu_context, operator, inputs, attributes, kind)
    compilation = Compilation(stored_profile("nvidia_ampere"), verify=True)
    plain = run_passes([DEAD_CODE, FOLD], graph, compilation, clean=remove_dead_code)
    fused = run_passes([FUSE_ATTENTION], plain, compilation, clean=remove_dead_code)
    names = [n.operator.name for n in fused.nodes]
    assert [n for n in names if n not in ("reshape", "transpose")] == expected
    assert "softmax" in {n.operator.name for n in plain.nodes}
    (node,) = [n for n in fused.nodes if n.operator.name == "attention"]
    assert node.arguments["causal"] == ("causal" in case or case == "GroupQueryAttention")
    if "Group" in case or "grouped" in case:
        assert len(node.operands["key"].shape) == 5 and node.operands["key"].shape[2] == 1
    feeds = random_feeds(graph)
    if case == "opset 23 with a mask":
        feeds["i3"] = feeds["i3"].copy()
        feeds["i3"][np.eye(3, 5) > 0] = -np.inf
        feeds["i3"][1] = -np.inf  # a query that sees nothing: zeros
    (one,), (other,) = (evaluate(g, **feeds).values() for g in (plain, fused))
    assert np.isfinite(one).all()
    bound = 1e-5 if kind == TensorProto.FLOAT else 4e-3
    assert_allclose(one, other, rtol=bound, atol=bound)


# -- PyTorch's attention with masks of truth values ----------------------------------------------
@pytest.mark.parametrize("heads", [4, 8])
@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.FLOAT16])
@pytest.mark.parametrize("mask", [(2, 1, 3, 5), (2, 8, 3, 5), (3, 5), (2, 1, 1, 5)])
@pytest.mark.parametrize("exporter", ["TorchScript", "dynamo"])
def test_exports_with_masks_of_truth_values(exporter, mask, kind, heads, cpu_context):
    builder = MLGraphBuilder(cpu_context)
    graph = builder._graph(build_operands(exported(exporter, mask, kind, heads), builder))
    compilation = Compilation(stored_profile("nvidia_ampere"), verify=True)
    plain = run_passes([DEAD_CODE, FOLD], graph, compilation, clean=remove_dead_code)
    fused = run_passes([FUSE_ATTENTION], plain, compilation, clean=remove_dead_code)
    names = [n.operator.name for n in fused.nodes]
    assert names.count("attention") == 1 and not {"softmax", "matmul", "expand"} & set(names)
    (node,) = [n for n in fused.nodes if n.operator.name == "attention"]
    assert node.arguments["scale"] == pytest.approx(8**-0.5, rel=1e-3)
    feeds = random_feeds(graph) | {"seen": seen_by(mask)}
    nothing = np.broadcast_to(feeds["seen"].any(axis=-1) == 0, (2, 8, 3))
    assert nothing.any() and not nothing.all()
    close = {"rtol": 1e-5, "atol": 1e-6} if kind == TensorProto.FLOAT else {"rtol": 4e-3,
                                                                           "atol": 4e-3}
    (one,), (other,) = (evaluate(g, **feeds).values() for g in (plain, fused))
    assert np.isfinite(one).all() and (one[nothing] == 0).all() and (other[nothing] == 0).all()
    assert_allclose(one, other, **close)
    # Scores that are no numbers count as 0 too; values that are none stay what they are.
    feeds["q"] = feeds["q"].copy()
    feeds["q"][1, 0, 2, 0] = np.nan
    feeds["v"] = feeds["v"].copy()
    feeds["v"][0, 1, 2, :2] = np.inf, np.nan
    (one,), (other,) = (evaluate(g, **feeds).values() for g in (plain, fused))
    assert (one[1, 0, 2] == 0).all() and np.isnan(one[0, 1 if heads == 8 else 2, :, 1]).all()
    assert_allclose(one, other, **close)


def test_what_else_reads_the_weights_keeps_them(cpu_context):
    proto = exported("dynamo", (3, 5), TensorProto.FLOAT, 8)
    proto.graph.output.append(info("weights", [2, 8, 3, 5]))
    builder = MLGraphBuilder(cpu_context)
    graph = builder._graph(build_operands(proto, builder))
    compilation = Compilation(stored_profile("nvidia_ampere"), verify=True)
    assert run_passes([FUSE_ATTENTION], graph, compilation, clean=remove_dead_code) is graph


@pytest.mark.parametrize("change", ["another number", "other weights", "infinity"])
def test_what_only_looks_like_it_is_left(change, cpu_context):
    proto = exported("dynamo", (3, 5), TensorProto.FLOAT, 8)
    nothing, safe = proto.graph.node[-3:-1]
    if change == "another number":
        safe.input[1] = "scale"
    elif change == "other weights":
        nothing.input[0] = "scores"
    else:
        nothing.op_type = "IsInf"
    builder = MLGraphBuilder(cpu_context)
    graph = builder._graph(build_operands(proto, builder))
    compilation = Compilation(stored_profile("nvidia_ampere"), verify=True)
    done = run_passes([FUSE_ATTENTION], graph, compilation, clean=remove_dead_code)
    assert "attention" not in {n.operator.name for n in done.nodes}

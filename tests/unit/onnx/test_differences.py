"""Each difference between ONNX's operators and WebNN's, shown: an imported node computes the same
as ONNX Runtime, an exported one in ONNX Runtime the same as WebNN."""

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.onnx_definitions import DIFFERENCES, SAME, all_records
from tests.support.onnx_differences import EXPORTS, IMPORTS
from tests.support.onnx_nodes import runtime
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.ir import onnx_pairs
from webnn_vk.compiler.ir.to_onnx import RULES
from webnn_vk.onnx import export

pytest.importorskip("onnxruntime")


def numbered(cases):
    return [
        pytest.param(case, id=f"{key} {i}")
        for key, many in cases.items() for i, case in enumerate(many)
    ]


def equal(got, expected):
    """Whole numbers exactly, floats to 1e-5 of the largest finite one; infinities and NaN alike."""
    assert (got.dtype, got.shape) == (expected.dtype, expected.shape)
    if got.dtype.kind != "f":
        np.testing.assert_array_equal(got, expected)
        return
    finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    bound = 5e-4 if got.dtype == np.float16 else 1e-5
    assert_allclose(
        got.astype(np.float64), expected, rtol=0, atol=bound * finite.max(initial=1e-30)
    )


@pytest.mark.parametrize("node", numbered(IMPORTS))
def test_imported(cpu_context, node):
    got, expected = node.results(cpu_context)
    assert len(got) == len(expected) == node.outputs
    for ours, theirs in zip(got, expected, strict=True):
        equal(ours, theirs)


@pytest.mark.parametrize("call", numbered(EXPORTS))
def test_exported(cpu_context, call):
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": call.input.dtype.name, "shape": call.input.shape})
    made = call.build(builder, x)
    made = list(made) if isinstance(made, (list, tuple)) else [made]
    outputs = {f"y{i}": y for i, y in enumerate(made)}
    theirs = runtime(export(outputs)).run(list(outputs), {"x": call.input})
    ours = cpu_context.compute(builder.build(outputs).result(), {"x": call.input})
    for name, expected in zip(outputs, theirs, strict=True):
        equal(ours[name], expected)


def test_every_difference_is_shown():
    keys = [d.key for d in DIFFERENCES]
    assert len(set(keys)) == len(keys)
    assert set(keys) == {*IMPORTS, *EXPORTS}


def test_every_operator_of_both_is_in_the_table():
    """Operators with one definition, or the difference, by the exporter's rules and the importer's
    records; each name exists."""
    tables = [onnx_pairs.UNARY, onnx_pairs.ARITHMETIC, onnx_pairs.COMPARISONS, onnx_pairs.LOGIC,
              onnx_pairs.REDUCTIONS, SAME]
    pairs = [pair for table in tables for pair in table.items()]
    pairs += [(d.onnx, d.webnn) for d in DIFFERENCES]
    # Loops are the compiler's; importer and exporter map them to Scan.
    assert {webnn for _, webnn in pairs} == set(RULES) - {"repeat"}
    assert {onnx for onnx, _ in pairs} <= {r.name for r in all_records() if not r.domain}

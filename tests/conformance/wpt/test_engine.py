"""Every conformance vector as an exported model, in ONNX Runtime."""

import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import webnn_vk.onnx
from tests.conformance.wpt import conformance, suite
from tests.conformance.wpt.test_conformance import FILES, needs_suite
from tests.support.onnx_exceptions import WRONG_IN_ONNX_RUNTIME
from webnn_vk import MLGraphBuilder


def differs(results, case):
    """The unexpected outcome, or None."""
    for name, resource in case["graph"]["expectedOutputs"].items():
        ok, worst, limit = suite.comparer().check(results[name], resource, case["tolerance"])
        if not ok:
            return f"{name}: {worst} exceeds {limit}"
    return None


def in_onnx_runtime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    names = [output.name for output in session.get_outputs()]
    made = session.run(names, {i.name: feeds[i.name] for i in session.get_inputs()})
    return dict(zip(names, made, strict=True))


@pytest.mark.sample(0.34)
@needs_suite
@pytest.mark.parametrize("file", FILES)
def test_exported(cpu_context, file):
    """The model passes ONNX's full check; ONNX Runtime computes it correctly unless it is listed;
    and so does our importer."""
    chosen = [case for _, case in conformance.cases(file) if not case.get("nonSpecDataType")]
    assert chosen
    for case in chosen:
        title = f"{file}: {case['name']}"
        builder = MLGraphBuilder(cpu_context)
        operands, feeds = conformance.build(builder, case["graph"], True)
        expected = case["graph"]["expectedOutputs"]
        model = webnn_vk.onnx.export({name: operands[name] for name in expected})
        onnx.checker.check_model(model, full_check=True)
        with webnn_vk.onnx.load(model, cpu_context).result() as graph:
            used = {name: feeds[name] for name in graph.inputs}
            assert differs(cpu_context.compute(graph, used), case) is None, title
        try:
            error = differs(in_onnx_runtime(model, feeds), case)
        except Exception as raised:
            error = str(raised)
        assert (error is not None) == (title in WRONG_IN_ONNX_RUNTIME), f"{title}: {error}"


@needs_suite
def test_no_stale_entry_in_the_list():
    titles = {f"{file}: {case['name']}" for file, case in conformance.cases()}
    assert set(WRONG_IN_ONNX_RUNTIME) <= titles

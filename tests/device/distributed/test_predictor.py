"""``Predictor`` as an actor of Ray would call it, without Ray."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper, save

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from webnn_vk import InvalidStateError
from webnn_vk.distributed import RowError
from webnn_vk.distributed.ray import Predictor

WEIGHTS = np.arange(12, dtype=np.float32).reshape(4, 3)
X = np.random.default_rng(26).standard_normal((11, 4)).astype(np.float32)


def linear(rows="n"):
    """y = x @ WEIGHTS + 1, and z = x > 0 as bools, of any number of rows or a fixed one."""
    return model(
        [helper.make_node("Gemm", ["x", "w", "b"], ["y"]),
         helper.make_node("Greater", ["x", "zero"], ["z"])],
        [info("x", [rows, 4])],
        [info("y", [rows, 3]), info("z", [rows, 4], TensorProto.BOOL)],
        {"w": WEIGHTS, "b": np.ones(3, np.float32), "zero": np.zeros(1, np.float32)},
    )


@pytest.fixture(params=["cpu", "vulkan"])
def device(request, monkeypatch, tmp_path):
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    return request.param


def check(found, count):
    assert {*found} == {"id", "y", "z"}
    np.testing.assert_array_equal(found["id"], np.arange(count))
    assert_allclose(found["y"], X[:count] @ WEIGHTS + 1, rtol=1e-5)
    np.testing.assert_array_equal(found["z"], X[:count] > 0)


def graphs(predictor):
    return {shapes[0][1][0]: graph for shapes, graph in predictor._model._graphs.items()}


def test_batches_of_any_size(device):
    predictor = Predictor(linear().SerializeToString(), device=device)
    for count in (9, 3, 1, 5, 9, 4, 11, 2):
        check(predictor({"x": X[:count], "id": np.arange(count)}), count)
    empty = predictor({"x": X[:0], "id": np.arange(0)})
    assert empty["y"].shape == (0, 3)
    if device == "vulkan":
        # The largest sizes, and powers of two for smaller batches.
        assert sorted(graphs(predictor)) == [1, 2, 4, 8, 9, 11]


def test_a_model_of_a_fixed_number_of_rows(device):
    predictor = Predictor(linear(4).SerializeToString(), device=device)
    for count in (11, 4, 3):
        check(predictor({"x": X[:count], "id": np.arange(count)}), count)
    if device == "vulkan":
        assert sorted(graphs(predictor)) == [4]


def test_names_of_inputs_and_outputs(device, tmp_path):
    save(linear(), tmp_path / "linear.onnx")
    predictor = Predictor(tmp_path / "linear.onnx", {"x": "pixels"}, {"y": "scores"}, device)
    found = predictor({"pixels": X, "y": np.zeros(11)})
    assert {*found} == {"scores", "y"}
    assert_allclose(found["scores"], X @ WEIGHTS + 1, rtol=1e-5)
    for inputs, outputs, message in (
        ({"X": "x"}, None, "inputs: 'X' is none of the model's inputs: x"),
        (None, ["z", "q"], "outputs: 'q' is none of the model's outputs: y, z"),
        ({}, None, "inputs: '{}' is none"), (None, "y", "outputs: 'y' is none"),
    ):
        with pytest.raises(ValueError, match=message):
            Predictor(tmp_path / "linear.onnx", inputs, outputs, device)


@pytest.mark.parametrize("device", ["vulkan"], indirect=True)
def test_graphs_come_from_the_cache_of_the_next_actor(device, tmp_path):
    save(linear(), tmp_path / "linear.onnx")
    for number, path in enumerate((tmp_path / "linear.onnx", tmp_path / "copy.onnx")):
        path.write_bytes((tmp_path / "linear.onnx").read_bytes())
        predictor = Predictor(str(path), device=device)
        check(predictor({"x": X, "id": np.arange(11)}), 11)
        [graph] = graphs(predictor).values()
        assert ("load" in graph.report().build_seconds) == bool(number)
    # Another model is another graph.
    other = linear()
    other.graph.initializer[0].CopyFrom(numpy_helper.from_array(WEIGHTS + 1, "w"))
    save(other, tmp_path / "linear.onnx")
    found = Predictor(str(tmp_path / "linear.onnx"), device=device)({"x": X})
    assert_allclose(found["y"], X @ (WEIGHTS + 1) + 1, rtol=1e-4)


def test_without_a_cache(device, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_CACHE", "off")
    check(Predictor(linear(), device=device)({"x": X, "id": np.arange(11)}), 11)


def test_tables_of_arrow(device):
    pa = pytest.importorskip("pyarrow")
    predictor = Predictor(linear(), device=device)
    lists = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 4)
    found = predictor(pa.table({"x": lists, "id": pa.array(range(11))}))
    assert found.column_names == ["id", "y", "z"]
    assert found.schema.field("y").type == pa.list_(pa.float32(), 3)
    made = {name: np.array(found[name].to_pylist()) for name in found.column_names}
    check(made, 11)


def test_rows_that_do_not_fit(device):
    predictor = Predictor(linear(), device=device)
    ragged = np.empty(3, object)
    ragged[:] = [X[0], X[1, :3], X[2]]
    for batch, message in (
        ({"y": X}, "there is no column 'x'; columns: y"),
        ({"x": ragged}, r"row 1 of the batch: column 'x': the shape is \[3\]; float32\[4\]"),
        ({"x": ragged, "path": np.array(["a", "b.png", "c"])}, r"row 1 of the batch \(b.png\)"),
        ({"x": np.array(["one"])}, "row 0 of the batch: .*'one' is no number"),
    ):
        with pytest.raises(RowError, match=message):
            predictor(batch)
    check(predictor({"x": X, "id": np.arange(11)}), 11)


def test_a_lost_device_is_opened_again(device, monkeypatch):
    predictor = Predictor(linear(), device=device)
    before = predictor._model.context
    before.destroy()  # a context that is lost is as one that was destroyed
    assert predictor._model.lost()
    check(predictor({"x": X, "id": np.arange(11)}), 11)
    assert predictor._model.context is not before and predictor._model.lost() is None

    # A device that is lost each time is an error.
    def open_lost():
        type(predictor._model)._open(predictor._model)
        predictor._model.context.destroy()

    monkeypatch.setattr(predictor._model, "_open", open_lost)
    predictor._model.context.destroy()
    with pytest.raises(InvalidStateError):
        predictor({"x": X, "id": np.arange(11)})


def test_models_without_rows():
    scalar = model([helper.make_node("Add", ["x", "s"], ["y"])],
                   [info("x", ["n", 2]), info("s", [])],
                   [info("y", ["n", 2])], {})
    with pytest.raises(ValueError, match=r"all inputs must be the row; they are 'x' .* 's' \[\]"):
        Predictor(scalar, device="cpu")
    summed = model([helper.make_node("ReduceSum", ["x"], ["y"], keepdims=0)],
                   [info("x", ["n", 2])], [info("y", [])], {})
    with pytest.raises(ValueError, match="output 'y' is .* for 3 rows: its first dimension isn't"):
        Predictor(summed, device="cpu")({"x": np.ones((3, 2), np.float32)})

"""Graphs saved and loaded run as before, on both devices; how weights are stored."""

import asyncio
import mmap

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

from tests.conformance.differential.graphs import graphs
from tests.support.discriminating import assert_allclose
from webnn_vk import InvalidStateError, MLGraphBuilder, webnn_file
from webnn_vk.api.builder import graph_of
from webnn_vk.support.mmap_array import owner_of
from webnn_vk.webnn_file import GraphFileError


def floats(rng, *shape):
    return rng.normal(size=shape).astype(np.float32)


def close(got, expected):
    """Constants may be rounded at other places than constant tensors and results computed from
    them."""
    assert_allclose(got, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())


def network(context, rng):
    """Outputs on a builder, and feeds."""
    builder = MLGraphBuilder(context)
    x = builder.input("x:0", {"data_type": "float32", "shape": [2, 3, 8, 8]})
    tensor = context.create_constant_tensor(
        {"data_type": "float32", "shape": [4]}, floats(rng, 4)
    ).result()
    y = builder.conv2d(x, builder.constant(floats(rng, 4, 3, 3, 3)), bias=builder.constant(tensor))
    y = builder.reshape(builder.relu(y), [2, 144])
    y = builder.matmul(y, builder.constant(floats(rng, 144, 10) / 40))
    half = builder.mul(y, builder.constant("float32", 0.5))
    outputs = {"x:0": builder.softmax(y, 1), "half": half}
    return builder, outputs, {"x:0": floats(rng, 2, 3, 8, 8)}


def test_saved_before_and_loaded_after_the_build(context, tmp_path, rng):
    builder, outputs, feeds = network(context, rng)
    path = tmp_path / "net.webnn"
    webnn_file.save(outputs, path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["net.safetensors", "net.webnn"]
    graph = builder.build(outputs).result()
    expected = context.compute(graph, feeds)
    loaded = webnn_file.load(path, context).result()
    assert loaded.inputs == graph.inputs and loaded.outputs == graph.outputs
    got = context.compute(loaded, feeds)
    for name, array in expected.items():
        close(got[name], array)
    again = tmp_path / "again" / "net.webnn"
    again.parent.mkdir()
    webnn_file.save(webnn_file.build_operands(path, MLGraphBuilder(context)), again)
    for one in (again, again.with_suffix(".safetensors")):
        assert one.read_bytes() == (tmp_path / one.name).read_bytes()


def test_a_built_graph_is_saved_as_it_was_compiled(context, tmp_path, rng):
    """Weights come back from the device, unpacked; a folded value is a constant."""
    builder, outputs, feeds = network(context, rng)
    x = outputs["half"]
    big = builder.matmul(x, builder.exp(builder.constant(floats(rng, 10, 2048) / 100)))
    outputs |= {"big": builder.layer_normalization(big), "seven": builder.neg(
        builder.constant("float32", -7))}
    graph = builder.build(outputs).result()
    if context.device_info.is_vulkan:
        assert graph.report().packed_bytes > 0
    expected = context.compute(graph, feeds)
    path = tmp_path / "built.webnn"
    webnn_file.save(graph, path)
    assert "exp(" not in path.read_text()
    loaded = webnn_file.load(path, context).result()
    assert loaded.inputs == graph.inputs and loaded.outputs == graph.outputs
    got = context.compute(loaded, feeds)
    for name, array in expected.items():
        close(got[name], array)
    # Once compiled, nothing more changes.
    again = tmp_path / "again.webnn"
    webnn_file.save(loaded, again)
    first, second = (p.with_suffix(".safetensors").read_bytes() for p in (path, again))
    assert len(first) == len(second)
    graph.destroy()
    with pytest.raises(InvalidStateError, match="destroyed"):
        webnn_file.save(graph, again)


@settings(max_examples=8, suppress_health_check=list(HealthCheck), deadline=None)
@given(random_graph=graphs())
def test_random_graphs_compute_the_same(random_graph, context, tmp_path_factory):
    path = tmp_path_factory.mktemp("graphs") / "g.webnn"
    expected, _ = random_graph.run(context)
    builder = MLGraphBuilder(context)
    values = []
    for i, source in enumerate(random_graph.sources):
        described = {"data_type": source.dtype.name, "shape": source.shape}
        values.append(
            builder.constant(described, source)
            if i in random_graph.constant
            else builder.input(f"x{i}", described)
        )
    for step in random_graph.steps:
        values += step.apply(builder, values)
    webnn_file.save({f"y{i}": values[i] for i in random_graph.outputs}, path)
    loaded = webnn_file.load(path, context).result()
    got = context.compute(
        loaded, {name: random_graph.sources[int(name[1:])] for name in loaded.inputs}
    )
    for name, array in expected.items():
        close(got[name], array)


def test_onto_a_builder_with_operands_for_inputs(context, tmp_path, rng):
    _, outputs, feeds = network(context, rng)
    path = tmp_path / "net.webnn"
    webnn_file.save(outputs, path)
    builder = MLGraphBuilder(context)
    own = builder.input("own", {"data_type": "float32", "shape": [2, 3, 8, 8]})
    made = webnn_file.build_operands(path, builder, {"x:0": builder.neg(own)})
    graph = builder.build({"best": builder.arg_max(made["x:0"], 1)}).result()
    whole = webnn_file.load(path, context).result()
    expected = context.compute(whole, feeds)["x:0"].argmax(1)
    got = context.compute(graph, {"own": -feeds["x:0"]})["best"]
    np.testing.assert_array_equal(got, expected)
    wrong = builder_input(context, [2, 3, 8, 9])
    with pytest.raises(TypeError, match="input 'x:0': .* the graph has float32"):
        webnn_file.build_operands(path, MLGraphBuilder(context), {"x:0": wrong})


def builder_input(context, shape):
    return MLGraphBuilder(context).input("own", {"data_type": "float32", "shape": shape})


def test_load_is_awaitable_and_rejects(cpu_context, tmp_path):
    async def main(path):
        return await webnn_file.load(path, cpu_context)

    (tmp_path / "g.webnn").write_text(REFERENCE)
    with pytest.raises(GraphFileError, match="line 4: dimension 'batch' is dynamic"):
        asyncio.run(main(tmp_path / "g.webnn"))
    assert isinstance(
        webnn_file.load(tmp_path / "no.webnn", cpu_context).exception(), FileNotFoundError
    )


#: The format's constructs, one of each.
REFERENCE = """\
# A comment
webnn_graph "reference" v2 @quantized {
  inputs {
    input: f32[dyn("batch", 8), 4];
  }
  consts {
    bias: f32[] @scalar(0.5);
    mask: u8[4] @bytes([1, 1, 0, 0]);
    weight: f32[4, 4] @weights("encoder.weight");
    unused: f16[2];
  }
  nodes {
    sum = add(input, bias, metadata={kind: "reference", axes: [1], enabled: true});
    kept = where(mask, sum, bias, label=null);
    product = matmul(kept, weight);
    [left, right] = split(product, splits=[2, 2], axis=1);
    [single] = concat(right, left, axis=1);
    normal = layerNormalization(single, scale="scale", bias=scale, axes=[1]);
    other = softmax(reshaped, 1);
  }
  outputs { single, normal other; }
}
"""


def test_dynamic_dimensions_and_everything_the_format_has(context, tmp_path, rng):
    text = REFERENCE.replace("unused: f16[2];", "scale: f32[4];").replace(
        "    other =", "    reshaped = reshape(product, [4, 2]);\n    other ="
    )
    (tmp_path / "g.webnn").write_text(text)
    weight, scale = floats(rng, 4, 4), floats(rng, 4)
    from safetensors.numpy import save_file

    save_file({"encoder_weight": weight, "scale": scale}, tmp_path / "model.safetensors")
    graph = webnn_file.load(tmp_path / "g.webnn", context, dimensions={"batch": 2}).result()
    x = floats(rng, 2, 4)
    got = context.compute(graph, {"input": x})
    product = np.where([1, 1, 0, 0], x + np.float32(0.5), np.float32(0.5)) @ weight
    single = np.concatenate([product[:, 2:], product[:, :2]], 1)
    assert_allclose(got["single"], single, rtol=1e-4, atol=1e-5)
    centred = single - single.mean(1, keepdims=True)
    normal = centred / np.sqrt((centred**2).mean(1, keepdims=True) + 1e-5) * scale + scale
    assert_allclose(got["normal"], normal, rtol=1e-4, atol=1e-5)
    exp = np.exp(product.reshape(4, 2))
    assert_allclose(got["other"], exp / exp.sum(1, keepdims=True), rtol=1e-4, atol=1e-5)


def test_brain_floats_stand_for_float32(cpu_context, tmp_path, rng):
    import ml_dtypes
    from safetensors.numpy import save_file

    weight = floats(rng, 3).astype(ml_dtypes.bfloat16)
    save_file({"w": weight}, tmp_path / "g.safetensors")
    (tmp_path / "g.webnn").write_text(
        'webnn_graph "g" v1 { consts { w: f32[3]; } nodes { y = neg(w); } outputs { y; } }'
    )
    graph = webnn_file.load(tmp_path / "g.webnn", cpu_context).result()
    np.testing.assert_array_equal(
        cpu_context.compute(graph, {})["y"], -weight.astype(np.float32)
    )


def test_weights_are_mapped_not_read(cpu_context, tmp_path, rng):
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": "float32", "shape": [1, 64]})
    y = builder.matmul(x, builder.constant(floats(rng, 64, 64)))
    webnn_file.save({"y": y}, tmp_path / "g.webnn")
    operands = webnn_file.build_operands(tmp_path / "g.webnn", MLGraphBuilder(cpu_context))
    (weight,) = graph_of(operands).constants()
    assert not weight.data.flags.owndata and not weight.data.flags.writeable
    assert isinstance(owner_of(weight.data), mmap.mmap)


def test_nothing_is_left_of_a_save_that_fails(cpu_context, tmp_path):
    builder = MLGraphBuilder(cpu_context)
    x = builder.input("x", {"data_type": "float32", "shape": [1]})
    with pytest.raises(TypeError, match="no Unicode text"):
        webnn_file.save({"y": builder.neg(x, label="\ud800")}, tmp_path / "g.webnn")
    with pytest.raises(TypeError, match="mapping of names to operands"):
        webnn_file.save({}, tmp_path / "g.webnn")
    with pytest.raises(TypeError, match="is an input or a constant"):
        webnn_file.save({"y": x}, tmp_path / "g.webnn")
    (tmp_path / "folder.webnn").mkdir()
    with pytest.raises(OSError):
        webnn_file.save({"y": builder.neg(x)}, tmp_path / "folder.webnn")
    assert [p.name for p in tmp_path.iterdir()] == ["folder.webnn"]

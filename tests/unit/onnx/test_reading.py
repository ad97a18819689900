"""Files that are damaged or hostile get a clear error, and quickly."""

import os
import resource
import time

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.support.counting import calls_of
from tests.support.onnx_models import classifier, info, model
from webnn_vk.api.builder import ShapeBuilder, constant_of
from webnn_vk.onnx import InvalidModelError, UnsupportedModelError
from webnn_vk.onnx.convert import Conversion
from webnn_vk.onnx.embedded import OWN_FILE, without_weights
from webnn_vk.onnx.importing import convert
from webnn_vk.onnx.reading import read_model
from webnn_vk.onnx.weights import ExternalData, to_array

node = helper.make_node
RNG = np.random.default_rng(0)


def take(source, inputs=None):
    """The whole import, but for a device."""
    conversion = Conversion(read_model(source), ShapeBuilder(), constant_of)
    return convert(conversion, inputs or {}, None)


def relu_model(**changes):
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [2])], [info("y", [2])])
    for name, value in changes.items():
        setattr(proto.graph.node[0], name, value)
    return proto


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x0a\xff\xff\xff\xff\x0f", bytes(100)])
def test_no_model(data):
    with pytest.raises(InvalidModelError, match="no ONNX file"):
        read_model(data)


def test_truncated():
    whole = classifier(RNG).SerializeToString()
    for length in range(0, len(whole), 97):
        with pytest.raises(InvalidModelError):
            read_model(whole[:length])


def test_what_is_no_source():
    with pytest.raises(TypeError, match="a path, bytes or onnx.ModelProto is expected, not int"):
        read_model(3)
    with pytest.raises(FileNotFoundError):
        read_model("/nowhere/at/all.onnx")


def test_files_over_two_gibibytes_are_not_read(tmp_path):
    path = tmp_path / "large.onnx"
    with path.open("wb") as file:
        file.truncate(2**31)
    with pytest.raises(InvalidModelError, match="larger than 2 GiB"):
        read_model(path)


def test_cycles():
    nodes = [node("Relu", ["b"], ["a"], "first"), node("Relu", ["a"], ["b"])]
    with pytest.raises(InvalidModelError, match="'first' .Relu. uses 'b' before anything makes it"):
        read_model(model(nodes, [], [info("b", [1])]))


def test_a_name_made_twice():
    nodes = [node("Relu", ["x"], ["y"]), node("Neg", ["x"], ["y"])]
    with pytest.raises(InvalidModelError, match="makes 'y' a second time"):
        read_model(model(nodes, [info("x", [1])], [info("y", [1])]))


def test_an_output_that_nothing_makes():
    with pytest.raises(InvalidModelError, match="output 'z' is made by no node"):
        read_model(model([], [info("x", [1])], [info("z", [1])]))


@pytest.mark.parametrize("version", [0, 10**6])
def test_unknown_opsets(version):
    with pytest.raises(InvalidModelError, match="opset"):
        read_model(model([node("Relu", ["x"], ["y"])], [info("x", [1])], [info("y", [1])],
                         opset=version))


def test_deeply_nested_graphs():
    graph = helper.make_graph([node("Relu", ["x"], ["y"])], "inner", [], [info("y", [1])])
    for _ in range(30):
        branch = node("If", ["c"], ["y"], then_branch=graph, else_branch=graph)
        graph = helper.make_graph([branch], "outer", [], [info("y", [1])])
        if graph.ByteSize() > 2**24:
            break
        graph.node[0].attribute[1].g.ClearField("node")  # one branch goes deep
        graph.node[0].attribute[1].g.node.append(node("Relu", ["x"], ["y"]))
    proto = model(graph.node, [info("x", [1]), info("c", [], TensorProto.BOOL)], [info("y", [1])])
    with pytest.raises(InvalidModelError, match="nested|no ONNX file"):
        read_model(proto.SerializeToString())


def test_names_that_are_no_text():
    data = relu_model(name="abcd").SerializeToString().replace(b"abcd", b"\xff\xfe\xfd\xfc")
    with pytest.raises(InvalidModelError, match="UTF-8"):
        read_model(data)


@pytest.mark.parametrize("dims", [[2**40], [-1], [3], [2**31, 2**31], [1] * 70])
def test_initializers_whose_bytes_do_not_fit(dims):
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=bytes(8))
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])])
    proto.graph.initializer.append(tensor)
    with pytest.raises(InvalidModelError, match="tensor 'w'"):
        take(proto)


def test_elements_in_fields_that_do_not_fit():
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2**35], float_data=[1.0])
    with pytest.raises(InvalidModelError, match="1 elements"):
        to_array(tensor, ExternalData(None))


@pytest.mark.parametrize("dims", [[2**40], [2**62, 4], [2**31 - 1, 2**31 - 1]])
def test_shape_arithmetic_can_not_ask_for_memory(dims):
    """Operators that make more than they read are asked for their size first."""
    constants = {"s": np.array(dims, np.int64)}
    proto = model(
        [node("ConstantOfShape", ["s"], ["big"]), node("Shape", ["big"], ["y"])], [],
        [info("y", [len(dims)], TensorProto.INT64)], constants,
    )
    start = time.monotonic()
    with pytest.raises(UnsupportedModelError, match="ConstantOfShape"):
        take(proto)
    assert time.monotonic() - start < 5


def function_model(functions, operator):
    proto = model([node(operator, ["x"], ["y"], domain="own")], [info("x", [2])], [info("y", [2])])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.extend(functions)
    return proto


def function(name, body):
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("own", 1)]
    return helper.make_function("own", name, ["a"], ["b"], body, opsets)


def test_functions_that_call_themselves():
    own = function("F", [node("F", ["a"], ["b"], domain="own")])
    with pytest.raises(InvalidModelError, match="nested more than|cyclic"):
        take(function_model([own], "F"))


def test_functions_that_multiply():
    """Each calls the next ten times: a billion nodes."""
    functions = [function("F9", [node("Relu", ["a"], ["b"])])]
    for i in range(9):
        body = [
            node(f"F{i + 1}", [f"v{j}" if j else "a"], [f"v{j + 1}" if j < 9 else "b"],
                 domain="own")
            for j in range(10)
        ]
        functions.append(function(f"F{i}", body))
    start = time.monotonic()
    with pytest.raises(InvalidModelError, match="are added when functions are expanded"):
        take(function_model(functions, "F0"))
    assert time.monotonic() - start < 120


def plain(count, kind):
    """A model of so many nodes, as exporters write: a chain, outputs of one, or branches."""
    if kind == "chain":
        nodes = [node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(count)]
        outputs = [info(f"v{count}", [2])]
    elif kind == "outputs":
        nodes = [node("Neg", ["v0"], [f"y{i}"]) for i in range(count)]
        outputs = [info(f"y{i}", [2]) for i in range(count)]
    else:
        graph = helper.make_graph([node("Neg", ["v0"], ["t"])], "t", [], [info("t", [2])])
        nodes = [
            node("If", ["c"], [f"y{i}"], then_branch=graph, else_branch=graph)
            for i in range(count // 3)
        ]
        outputs = [info("y0", [2])]
    return model(nodes, [info("v0", [2])], outputs, {"c": np.array(True)})


def test_plain_nodes_do_not_count_as_expanded():
    assert take(plain(100_000, "chain"))["v100000"].shape == (2,)


@pytest.mark.parametrize("kind", ["chain", "outputs", "branches"])
def test_importing_takes_work_in_proportion(kind):
    few, many = (plain(count, kind) for count in (1000, 8000))
    assert calls_of(lambda: take(many)) < 1.1 * 8 * calls_of(lambda: take(few))


def loop_model(body):
    """A thousand iterations of a body on x."""
    return model(
        [node("Loop", ["n", "c", "x"], ["y"], body=body)], [info("x", [2])], [info("y", [2])],
        {"n": np.array(1000), "c": np.array(True)},
    )


@pytest.mark.parametrize("what", ["nodes", "nodes that nothing needs", "initializers"])
def test_loops_that_multiply(what):
    """What a file has once may be looked at a thousand times."""
    count = 200
    if what == "nodes":
        nodes = [node("Neg", [f"v{i}" if i else "a"], [f"v{i + 1}"]) for i in range(count)]
    else:
        nodes = [node("Neg", ["a"], [f"v{count}"])]
        if what == "nodes that nothing needs":
            nodes += [node("Neg", ["a"], [f"u{i}"]) for i in range(count)]
    body = helper.make_graph(
        nodes, "body",
        [info("i", [], TensorProto.INT64), info("go", [], TensorProto.BOOL), info("a", [2])],
        [info("go", [], TensorProto.BOOL), info(f"v{count}", [2])],
        [numpy_helper.from_array(np.zeros(1), f"w{i}") for i in range(count)]
        if what == "initializers" else [],
    )
    with pytest.raises(InvalidModelError, match="are added when functions are expanded and loops"):
        take(loop_model(body))


HUGE = 2**31 - 1
GREEDY = {
    "parts of a split": (
        [node("Split", ["x"], ["y", "z"], num_outputs=2**62)], [[HUGE]], {}, 18),
    "parts of a sequence": (
        [node("SplitToSequence", ["x"], ["s"]), node("SequenceAt", ["s", "i"], ["y"])], [[HUGE]],
        {"i": np.array(0)}, 18),
    "depth of a filter": ([node("Conv", ["x", "w"], ["y"])], [[1, 1, 10**6, 1, 1]] * 2, {}, 18),
    "depth of a transposed filter": (
        [node("ConvTranspose", ["x", "w"], ["y"])], [[1, 1, 9, 1, 1], [1, 1, 10**7, 1, 1]], {}, 18),
    "steps of a network": (
        [node("LSTM", ["x", "w", "r", "", "n"], ["y"], hidden_size=1)],
        [[10**8, 1, 1], [1, 4, 1], [1, 4, 1]], {"n": np.array([5], np.int32)}, 18),
    "best of many": (
        [node("TopK", ["x", "k"], ["y", "z"])], [[10**7]], {"k": np.array([10**6])}, 18),
    "places of the largest": ([node("Hardmax", ["x"], ["y"])], [[2, 10**8]], {}, 18),
    "classes": (
        [node("Cast", ["x"], ["i"], to=7), node("OneHot", ["i", "d", "v"], ["y"])], [[7]],
        {"d": np.array(2**60), "v": np.zeros(2, np.float32)}, 18),
    "a resized image": (
        [node("Resize", ["x", "", "", "s"], ["y"], mode="linear")], [[1, 1, 2]],
        {"s": np.array([1, 1, HUGE])}, 18),
    "letters": (
        [node("Einsum", ["x"], ["y"], equation="a" * 10_000 + "->a")], [[1]], {}, 18),
    "frames": ([node("STFT", ["x", "s"], ["y"])], [[1, 10**9, 1]], {"s": np.array(1)}, 17),
}


@pytest.mark.parametrize("name", GREEDY)
def test_operators_can_not_ask_for_time_or_memory(name):
    nodes, shapes, constants, opset = GREEDY[name]
    ports = [info(n, shape) for n, shape in zip(("x", "w", "r"), shapes, strict=False)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    start = time.process_time()
    try:
        take(model(nodes, ports, [info("y", None)], constants, opset=opset))
    except (InvalidModelError, UnsupportedModelError):
        pass
    assert time.process_time() - start < 60
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000


# -- external data ---------------------------------------------------------------------------------
def external(tmp_path, location, length=8, offset=None, size=8):
    """A model beside a file of weights, which it finds at ``location``."""
    folder = tmp_path / "model"
    folder.mkdir(exist_ok=True)
    (folder / "weights.bin").write_bytes(np.arange(size // 4, dtype=np.float32).tobytes())
    (tmp_path / "secret.bin").write_bytes(bytes(64))
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    entries = {"location": location, "length": str(length)}
    if offset is not None:
        entries["offset"] = str(offset)
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])])
    proto.graph.initializer.append(tensor)
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


def weight_of(path):
    read = read_model(path)
    return to_array(read.graph.initializer[0], read.external)


def test_external_data_is_mapped_not_read(tmp_path):
    array = weight_of(external(tmp_path, "weights.bin", offset=8, size=32))
    np.testing.assert_array_equal(array, [2, 3])
    assert not array.flags.writeable
    assert not array.flags.owndata


@pytest.mark.parametrize(
    "location", ["../secret.bin", "x/../../secret.bin", "/etc/passwd", "", ".", "no.bin", "a\0b"]
)
def test_external_data_outside_of_the_folder_is_refused(tmp_path, location):
    with pytest.raises(InvalidModelError, match="refused|no file|no name"):
        take(external(tmp_path, location))


def test_links_that_lead_out_are_refused(tmp_path):
    path = external(tmp_path, "link.bin")
    (path.parent / "link.bin").symlink_to(tmp_path / "secret.bin")
    with pytest.raises(InvalidModelError, match="outside of the model's folder"):
        take(path)


@pytest.mark.parametrize(
    ("length", "offset"), [(8, 4), (8, -8), (2**62, 0), (4, 0), (8, 2**63), (-8, 0)]
)
def test_external_data_past_its_file(tmp_path, length, offset):
    with pytest.raises(InvalidModelError, match="tensor 'w'"):
        take(external(tmp_path, "weights.bin", length, offset))


def test_external_data_needs_the_path(tmp_path):
    proto = onnx.load(external(tmp_path, "weights.bin"), load_external_data=False)
    with pytest.raises(InvalidModelError, match="load the model by its path"):
        take(proto)


def test_external_data_that_is_no_plain_file(tmp_path):
    path = external(tmp_path, "odd")
    odd = path.parent / "odd"
    for make in (
        lambda: os.mkfifo(odd), odd.mkdir, lambda: odd.symlink_to("/dev/zero"),
        lambda: odd.symlink_to(odd), lambda: odd.symlink_to(tmp_path / "no"),
        lambda: odd.symlink_to("/proc/self/mem"), lambda: odd.symlink_to(".."),
        lambda: odd.symlink_to("../secret.bin"),
    ):
        make()
        with pytest.raises(InvalidModelError, match="tensor 'w': .*(refused|no file)"):
            take(path)
        odd.rmdir() if odd.is_dir() and not odd.is_symlink() else odd.unlink()
    # A link inside of the folder is fine; so is a file with holes, however long.
    odd.symlink_to("weights.bin")
    assert weight_of(path).tolist() == [0, 1]
    odd.unlink()
    with odd.open("wb") as file:
        file.truncate(1 << 42)
    assert weight_of(path).tolist() == [0, 0]


LOCATIONS = st.sampled_from([
    "weights.bin", "./weights.bin", "x/../weights.bin", "../model/weights.bin", "../secret.bin",
    "..", "/", "//", "~", "", "\0own", "weights.bin\0", "weights.bin/", "C:\\weights.bin", "-", "*",
    "/proc/self/mem", "/dev/stdin", "file:///etc/passwd", "a" * 5000, "../" * 2000 + "etc/passwd",
]) | st.text(max_size=20)
NUMERALS = st.sampled_from([
    "0", "8", "-8", "4", "16", "24", "1e1", "0x8", "8.0", " 8 ", "8_0", "", "nan", "٨", "9" * 5000,
    str(2**63), str(2**64), str(-(2**63)), "+8",
]) | st.text(max_size=5) | st.integers().map(str)


@hypothesis.given(data=st.data())
@hypothesis.settings(max_examples=max(150, hypothesis.settings.default.max_examples))
def test_hostile_external_data(data, tmp_path_factory):
    """Anything in what says where a tensor lies: bytes of the folder's file, or an error."""
    folder = tmp_path_factory.getbasetemp() / "hostile"
    if not folder.exists():
        external_folder(folder)
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    for key, values in (("location", LOCATIONS), ("offset", NUMERALS), ("length", NUMERALS),
                        ("checksum", NUMERALS), ("location", LOCATIONS)):
        if data.draw(st.integers(0, 3)):
            tensor.external_data.add(key=key, value=data.draw(values))
    tensor.dims[:] = data.draw(st.sampled_from([[2], [1, 2], [0], [], [2**40], [-2], [2**62, 4]]))
    stored = ExternalData(folder / "model")
    try:
        array = to_array(tensor, stored)
    except InvalidModelError as error:
        assert len(str(error)) < 1000 and str(error).isprintable()
    else:
        assert array.size <= 2
        whole = (folder / "model" / "weights.bin").read_bytes()
        assert array.tobytes() in whole


def external_folder(folder):
    (folder / "model" / "x").mkdir(parents=True)
    (folder / "model" / "weights.bin").write_bytes(np.arange(6, dtype=np.float32).tobytes())
    (folder / "secret.bin").write_bytes(b"secret!!" * 4)


# -- anything at all -------------------------------------------------------------------------------
SEEDS = [
    classifier(RNG, (1, 3, 8, 8)).SerializeToString(),
    relu_model().SerializeToString(),
    model(
        [node("If", ["c"], ["y"],
              then_branch=helper.make_graph([node("Neg", ["x"], ["t"])], "t", [], [info("t", [2])]),
              else_branch=helper.make_graph([node("Abs", ["x"], ["e"])], "e", [],
                                            [info("e", [2])]))],
        [info("x", [2]), info("c", [], TensorProto.BOOL)], [info("y", [2])],
    ).SerializeToString(),
]


@hypothesis.given(
    st.sampled_from(SEEDS),
    st.lists(st.tuples(st.integers(0, 2**16), st.binary(max_size=4), st.integers(0, 4)),
             min_size=1, max_size=6),
)
@hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck))
def test_damaged_files(seed, changes):
    data = bytearray(seed)
    for at, new, gone in changes:
        at %= len(data) + 1
        data[at : at + gone] = new
    try:
        take(bytes(data))
    except (InvalidModelError, UnsupportedModelError) as error:
        assert str(error) and len(str(error)) < 5000


NUMBERS = st.sampled_from([0, 1, -1, 2, 3, 65536, 2**31 - 1, 2**31, 2**63 - 1, -(2**63)])


@hypothesis.given(st.data())
@hypothesis.settings(suppress_health_check=list(hypothesis.HealthCheck))
def test_hostile_attributes(data):
    """Any number in any attribute or initializer of a valid model."""
    proto = onnx.ModelProto.FromString(SEEDS[0])
    chosen = data.draw(st.sampled_from(range(len(proto.graph.node))))
    for attribute in proto.graph.node[chosen].attribute:
        if attribute.type == AttributeProto.INT:
            attribute.i = data.draw(NUMBERS)
        elif attribute.type == AttributeProto.INTS:
            attribute.ints[:] = data.draw(st.lists(NUMBERS, max_size=5))
    index = data.draw(st.sampled_from(range(3, 6)))
    shape = proto.graph.initializer[index].dims
    array = np.array(data.draw(NUMBERS)).astype(np.int64).reshape(tuple(shape))
    proto.graph.initializer[index].CopyFrom(
        numpy_helper.from_array(array, proto.graph.initializer[index].name)
    )
    try:
        take(proto)
    except (InvalidModelError, UnsupportedModelError) as error:
        assert str(error) and len(str(error)) < 5000


# -- weights in the file itself --------------------------------------------------------------------
def test_embedded_weights_are_read_where_they_lie(tmp_path):
    w = RNG.normal(size=(64, 64)).astype(np.float32)
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", [1, 64])], [info("y", [1, 64])],
                  {"w": w, "small": np.ones(3, np.float32)})
    path = tmp_path / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    read = read_model(path)
    stored = {t.name: t for t in read.graph.initializer}
    assert not stored["w"].raw_data
    assert len(stored["small"].raw_data) == 12
    array = to_array(stored["w"], read.external)
    np.testing.assert_array_equal(array, w)
    assert not array.flags.owndata
    assert [n.op_type for n in read.graph.node] == ["MatMul"]


@pytest.mark.parametrize("kind", ["raw", "float_data", "double_data"])
def test_bytes_of_weights_are_not_copied_wherever_a_file_has_them(kind):
    w = np.arange(2048, dtype=np.float64 if kind == "double_data" else np.float32)
    data_type = helper.np_dtype_to_tensor_dtype(w.dtype)
    values = w.tobytes() if kind == "raw" else w
    tensor = helper.make_tensor("w", data_type, [2048], values, raw=kind == "raw")
    assert tensor.HasField("raw_data") == (kind == "raw")
    proto = model([node("Neg", ["w"], ["y"])], [], [info("y", [2048], data_type)])
    proto.graph.initializer.append(tensor)
    data = proto.SerializeToString()
    (stored,) = (read := read_model(data)).graph.initializer
    array = to_array(stored, read.external)
    np.testing.assert_array_equal(array, w)
    assert np.shares_memory(array, np.frombuffer(data, np.uint8))
    # Elements of another type, or twice, are for protobuf to judge.
    tensor.data_type = TensorProto.COMPLEX64
    proto.graph.initializer[0].CopyFrom(tensor)
    assert kind == "raw" or without_weights(memoryview(proto.SerializeToString())) is None


def test_a_model_can_not_name_its_own_bytes_elsewhere():
    proto = model([node("Add", ["x", "w"], ["y"])], [info("x", [2])], [info("y", [2])])
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2])
    tensor.data_location = TensorProto.EXTERNAL
    tensor.external_data.add(key="location", value=OWN_FILE)
    proto.graph.initializer.append(tensor)
    with pytest.raises(InvalidModelError, match="load the model by its path"):
        take(proto.SerializeToString())


@hypothesis.given(st.binary(max_size=64), st.integers(0, 2**13), st.integers(0, 2**13))
def test_the_walk_over_a_file_agrees_with_protobuf(junk, start, end):
    """Damaged anywhere, the small model is what protobuf makes of the whole one, or there is
    none."""
    w = np.arange(2048, dtype=np.float32)
    whole = bytearray(model([node("Neg", ["w"], ["y"])], [], [info("y", [2048])],
                            {"w": w}).SerializeToString())
    whole[min(start, end) : max(start, end)] = junk
    data = bytes(whole)
    small = without_weights(memoryview(data))
    if small is None:
        return
    try:
        expected = onnx.ModelProto.FromString(data)
    except DecodeError:
        return  # the small model is as damaged, or its bytes do not fit: said later
    made = onnx.ModelProto.FromString(small)
    assert [t.name for t in made.graph.initializer] == [t.name for t in expected.graph.initializer]
    assert list(made.graph.node) == list(expected.graph.node)


def test_locations_that_are_no_text(tmp_path):
    path = external(tmp_path, "abcd.bin")
    path.write_bytes(path.read_bytes().replace(b"abcd", b"\xff\xfe\xfd\xfc"))
    with pytest.raises(InvalidModelError, match="UTF-8"):
        take(path)

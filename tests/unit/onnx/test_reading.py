"""Files that are damaged or hostile get a clear error, with little work."""

import hypothesis
import hypothesis.strategies as st
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper

from tests.support.counting import calls_of, peak_bytes_of
from tests.support.onnx_models import classifier, info, model, take
from webnn_vk.onnx import InvalidModelError, UnsupportedModelError, convert
from webnn_vk.onnx.open_dimensions import exported_bounds
from webnn_vk.onnx.reading import read_model
from webnn_vk.onnx.weights import ExternalData, to_array

node = helper.make_node


def relu_model(**changes):
    proto = model([node("Relu", ["x"], ["y"])], [info("x", [2])], [info("y", [2])])
    for name, value in changes.items():
        setattr(proto.graph.node[0], name, value)
    return proto


@pytest.mark.parametrize("data", [b"", b"not a model", b"\x0a\xff\xff\xff\xff\x0f", bytes(100)])
def test_no_model(data):
    with pytest.raises(InvalidModelError, match="no ONNX file"):
        read_model(data)


def test_truncated(rng):
    whole = classifier(rng).SerializeToString()
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


FIELDS = {
    "float_data": (TensorProto.FLOAT, 1.5), "double_data": (TensorProto.DOUBLE, 1.5),
    "int32_data": (TensorProto.INT8, 3), "int64_data": (TensorProto.INT64, 3),
    "uint64_data": (TensorProto.UINT64, 3), "string_data": (TensorProto.STRING, b"a"),
    "raw_data": (TensorProto.INT8, b"a"),
}


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(("dims", "count"), [
    ([3], 0), ([3], 1), ([3], 2), ([3], 4), ([], 0), ([], 2), ([0], 1), ([2, 2], 3), ([-1], 1),
    ([2**40, 2**40], 1), ([0, 2**62], 0), ([1] * 70, 1),
])
def test_too_few_and_too_many_elements(field, dims, count):
    """As an initializer, and inside of a node and of a sparse tensor."""
    kind, value = FIELDS[field]
    tensor = TensorProto(name="w", data_type=kind, dims=dims)
    if field == "raw_data":
        tensor.raw_data = value * count
    else:
        getattr(tensor, field).extend([value] * count)
    dense = model([node("Identity", ["w"], ["y"])], [], [info("y", None, kind)])
    dense.graph.initializer.append(tensor)
    sparse = model([node("Identity", ["w"], ["y"])], [], [info("y", None, kind)])
    sparse.graph.sparse_initializer.add(values=tensor, dims=[9]).indices.CopyFrom(
        numpy_helper.from_array(np.zeros(max(count, 1), np.int64)))
    inside = model([node("Constant", [], ["y"], value=tensor)], [], [info("y", None, kind)])
    # Text is refused inside of nodes and of sparse tensors.
    for proto in (dense,) if field == "string_data" else (dense, sparse, inside):
        with pytest.raises(InvalidModelError, match="tensor"):
            take(proto)


@pytest.mark.parametrize("indices", [[[0, 9]], [[-1, 0]], [[0.5, 0.5]], [[0]], [[2**62, 1]]])
def test_sparse_tensors_whose_places_are_elsewhere(indices):
    proto = model([node("Identity", ["w"], ["y"])], [], [info("y", [2, 2])])
    made = proto.graph.sparse_initializer.add(dims=[2, 2])
    made.values.CopyFrom(numpy_helper.from_array(np.ones(2, np.float32), "w"))
    made.indices.CopyFrom(numpy_helper.from_array(np.array(indices)))
    with pytest.raises(InvalidModelError, match="sparse tensor"):
        take(proto)


@pytest.mark.parametrize("text", ["[" * 100_000, '{"n": 3}', '{"n": [1, NaN]}', "9" * 5000, "[]"])
def test_dimensions_that_another_program_noted(text):
    proto = relu_model()
    proto.metadata_props.add(key="webnn_vk.dimensions", value=text)
    assert exported_bounds(proto) == {}


@pytest.mark.parametrize("dims", [[2**40], [2**62, 4], [2**31 - 1, 2**31 - 1]])
def test_shape_arithmetic_can_not_ask_for_memory(dims):
    """Operators that make more than they read are asked for their size first."""
    constants = {"s": np.array(dims, np.int64)}
    proto = model(
        [node("ConstantOfShape", ["s"], ["big"]), node("Shape", ["big"], ["y"])], [],
        [info("y", [len(dims)], TensorProto.INT64)], constants,
    )

    def refused():
        with pytest.raises(UnsupportedModelError, match="ConstantOfShape"):
            take(proto)

    assert calls_of(refused) < 10_000 and peak_bytes_of(refused) < 1 << 20


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


@pytest.fixture
def most(monkeypatch):
    """The most nodes that may be added: fewer than usual, to save time."""
    monkeypatch.setattr(convert, "MAX_NODES", 3000)
    return convert.MAX_NODES


def test_functions_that_multiply(most):
    """Each calls the next ten times: a billion nodes, which would take longer than a test may."""
    functions = [function("F9", [node("Relu", ["a"], ["b"])])]
    for i in range(9):
        body = [
            node(f"F{i + 1}", [f"v{j}" if j else "a"], [f"v{j + 1}" if j < 9 else "b"],
                 domain="own")
            for j in range(10)
        ]
        functions.append(function(f"F{i}", body))
    with pytest.raises(InvalidModelError, match="are added when functions are expanded"):
        take(function_model(functions, "F0"))


def plain(count, kind):
    """A model of this many nodes, as exporters write them: a chain, outputs of one, or branches."""
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


def test_plain_nodes_do_not_count_as_expanded(most):
    count = most + 1000
    assert take(plain(count, "chain"))[f"v{count}"].shape == (2,)


@pytest.mark.parametrize("kind", ["chain", "outputs", "branches"])
def test_importing_takes_work_in_proportion(kind):
    few, many = (plain(count, kind) for count in (500, 4000))
    assert calls_of(lambda: take(many)) < 1.1 * 8 * calls_of(lambda: take(few))


def loop_model(body):
    """A thousand iterations of a body on x, and on a number that is known in each: so they can't
    become one loop."""
    return model(
        [node("Loop", ["n", "c", "x", "n"], ["y", "z"], body=body)], [info("x", [2])],
        [info("y", [2])], {"n": np.array(1000), "c": np.array(True)},
    )


@pytest.mark.parametrize("what", ["nodes", "nodes that nothing needs", "initializers"])
def test_loops_that_multiply(what, most):
    """A tensor that is in a file once may be read a thousand times."""
    count = 200
    if what == "nodes":
        nodes = [node("Neg", [f"v{i}" if i else "a"], [f"v{i + 1}"]) for i in range(count)]
    else:
        nodes = [node("Neg", ["a"], [f"v{count}"])]
        if what == "nodes that nothing needs":
            nodes += [node("Neg", ["a"], [f"u{i}"]) for i in range(count)]
    nodes.append(node("Add", ["k", "k"], ["twice"]))
    number = [], TensorProto.INT64
    body = helper.make_graph(
        nodes, "body",
        [info("i", *number), info("go", [], TensorProto.BOOL), info("a", [2]), info("k", *number)],
        [info("go", [], TensorProto.BOOL), info(f"v{count}", [2]), info("twice", *number)],
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

    def ask():
        try:
            take(model(nodes, ports, [info("y", None)], constants, opset=opset))
        except (InvalidModelError, UnsupportedModelError):
            pass

    # "letters" takes 20,000 calls and 100 kB.
    assert calls_of(ask) < 100_000 and peak_bytes_of(ask) < 10 << 20


# -- anything at all -------------------------------------------------------------------------------
def small_classifier():
    return classifier(np.random.default_rng(0), (1, 3, 8, 8))


SEEDS = [
    small_classifier().SerializeToString(),
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

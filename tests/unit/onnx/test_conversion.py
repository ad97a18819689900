"""The conversion of a model's nodes, recorded by a builder without a device."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.support.onnx_models import classifier, info, model
from webnn_vk.api.builder import ShapeBuilder, constant_of
from webnn_vk.onnx import UnsupportedModelError, functions, requirements
from webnn_vk.onnx.convert import Conversion
from webnn_vk.onnx.importing import convert
from webnn_vk.onnx.reading import read_model
from webnn_vk.onnx.types import numpy_type
from webnn_vk.support.errors import NotSupportedError

node = helper.make_node


def take(source, inputs=None, wanted=None, **options):
    """The outputs, and the operators on the builder."""
    builder = ShapeBuilder()
    conversion = Conversion(read_model(source), builder, constant_of, **options)
    outputs = convert(conversion, inputs or {}, wanted)
    return outputs, [n.operator.name for n in builder._nodes]


def test_shape_arithmetic_leaves_no_trace(rng):
    outputs, operators = take(classifier(rng), {"image": (7, 3, 8, 8)})
    assert outputs["scores"].shape == (7, 5)
    assert operators == ["conv2d", "relu", "max_pool2d", "reshape", "gemm"]


def test_labels_are_the_nodes_names(rng):
    builder = ShapeBuilder()
    convert(Conversion(read_model(classifier(rng)), builder, constant_of),
            {"image": (1, 3, 8, 8)}, None)
    assert [n.label for n in builder._nodes] == ["stem", "active", "pooled", "flat", "head"]


def test_weights_are_not_copied(rng):
    proto = classifier(rng)
    read = read_model(proto.SerializeToString())
    builder = ShapeBuilder()
    convert(Conversion(read, builder, constant_of), {"image": (1, 3, 8, 8)}, None)
    weight = builder._nodes[0].operands["filter"].data
    assert not weight.flags.owndata
    np.testing.assert_array_equal(weight, numpy_helper.to_array(proto.graph.initializer[0]))


def test_all_that_can_not_be_taken_is_listed():
    nodes = [
        node("NonZero", ["x"], ["a"], "first"),
        node("RandomNormal", [], ["b"], "second", shape=[2]),
        node("Relu", ["a"], ["c"], "after the first"),
        node("Own", ["x"], ["d"], "third", domain="own"),
        node("Resize", ["x", "", "s"], ["e"], "fourth"),
    ]
    outputs = [info(n, None) for n in "bcde"]
    proto = model(nodes, [info("x", [2]), info("s", [1])], outputs)
    proto.opset_import.append(helper.make_opsetid("own", 1))
    with pytest.raises(UnsupportedModelError) as caught:
        take(proto)
    problems = caught.value.problems
    assert [p.node for p in problems] == ["first", "second", "third", "fourth"]
    assert "shape of its result depends on values" in problems[0].reason
    assert "no random numbers" in problems[1].reason
    assert problems[2].operator == "own.Own"
    assert problems[3].inputs == {"s"}
    assert caught.value.values_needed == {"s"}
    assert all(p.node in str(caught.value) for p in problems)
    assert isinstance(caught.value, NotSupportedError)


def test_nodes_that_no_output_needs_do_not_matter():
    nodes = [node("RandomNormal", [], ["b"], shape=[2]), node("Neg", ["x"], ["y"])]
    _, operators = take(model(nodes, [info("x", [2])], [info("y", [2])]))
    assert operators == ["neg"]


def test_values_inside_may_be_outputs():
    """As those are given that a map is made of, which WebNN has not."""
    nodes = [
        node("Softmax", ["x"], ["scores"]),
        node("ZipMap", ["scores"], ["named"], "names", domain="ai.onnx.ml", classlabels_int64s=[1]),
    ]
    named = helper.make_value_info("named", helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(1, []))))
    proto = model(nodes, [info("x", [2, 1])], [named])
    proto.opset_import.append(helper.make_opsetid("ai.onnx.ml", 1))
    with pytest.raises(UnsupportedModelError, match=r"'named': .* no maps.*'scores'"):
        take(proto)
    outputs, operators = take(proto, wanted=["scores"])
    assert list(outputs) == ["scores"] and operators == ["softmax"]
    with pytest.raises(ValueError, match="no output 'x', and no node makes it; it has 'named'"):
        take(proto, wanted=["x"])


def test_unknown_dimensions_are_asked_for(rng):
    with pytest.raises(UnsupportedModelError, match=r"input 'image': its shape \[n, 3, 8, 8\]"):
        take(classifier(rng))
    with pytest.raises(UnsupportedModelError, match="the model has .n, 3, 8, 8"):
        take(classifier(rng), {"image": (1, 4, 8, 8)})
    with pytest.raises(ValueError, match="no input 'other'; it has 'image'"):
        take(classifier(rng), {"other": (1,)})


def test_dimensions_of_one_name_agree():
    proto = model([node("Add", ["a", "b"], ["y"])], [info("a", ["n"]), info("b", ["n"])],
                  [info("y", ["n"])])
    outputs, _ = take(proto, {"a": (5,)})
    assert outputs["y"].shape == (5,)


def branching(shapes=((2,), (2,))):
    branches = {
        f"{name}_branch": helper.make_graph(
            [node(op, ["x"], [name])] if shape == (2,)
            else [node(op, ["x"], ["v"]), node("ReduceSum", ["v"], [name], keepdims=0)],
            name, [], [info(name, shape)],
        )
        for (name, op), shape in zip((("then", "Neg"), ("else", "Abs")), shapes, strict=True)
    }
    return model([node("If", ["c"], ["y"], "choice", **branches)],
                 [info("x", [2]), info("c", [], TensorProto.BOOL)], [info("y", None)])


def test_a_known_condition_takes_one_branch():
    assert take(branching(), {"c": np.array(True)})[1] == ["neg"]
    assert take(branching(((2,), ())), {"c": np.array(False)})[1] == ["abs", "reduce_sum"]


def test_an_unknown_condition_chooses_between_both():
    assert take(branching())[1] == ["neg", "abs", "where"]
    with pytest.raises(UnsupportedModelError) as caught:
        take(branching(((2,), ())))
    assert caught.value.values_needed == {"c"}


def test_short_loops_with_a_known_count_are_unrolled():
    body = helper.make_graph(
        [node("Add", ["v", "x"], ["w"]), node("Identity", ["going"], ["more"])], "body",
        [info("i", [], TensorProto.INT64), info("going", [], TensorProto.BOOL), info("v", [2])],
        [info("more", [], TensorProto.BOOL), info("w", [2])],
    )
    proto = model([node("Loop", ["n", "", "x"], ["y"], body=body)], [info("x", [2])],
                  [info("y", [2])], {"n": np.array(3)})
    assert take(proto)[1] == ["add"] * 3


def counted(iterations, **more):
    """v = (v + x) · c, repeatedly; further nodes of the body, and what it stacks."""
    nodes = [node("Add", ["v", "x"], ["u"]), node("Mul", ["u", "c"], ["w"]),
             node("Identity", ["going"], ["more"])]
    body = helper.make_graph(
        [*nodes, *more.get("nodes", ())], "body",
        [info("i", [], TensorProto.INT64), info("going", [], TensorProto.BOOL), info("v", [2])],
        [info("more", [], TensorProto.BOOL), info("w", [2]), *more.get("stacked", ())],
    )
    outputs = ["y", *(f"all{i}" for i in range(len(more.get("stacked", ()))))]
    return model(
        [node("Loop", ["n", "", "x"], outputs, body=body)], [info("x", [2])],
        [info("y", [2])], {"n": np.array(iterations), "c": np.float32(0.5)},
    )


def test_the_length_of_a_loop_costs_no_operators():
    def operators(iterations):
        # The first iteration is converted before it is known whether all are alike.
        return [name for name in take(counted(iterations))[1] if name == "repeat"]

    assert operators(7) == [] and operators(8) == operators(5000) == ["repeat"]
    with pytest.raises(UnsupportedModelError, match="more than 1024 iterations"):
        take(counted(1 << 20))


def test_iterations_that_differ_at_import_are_unrolled():
    # A slice from the iteration's number to its end: its length differs.
    given = {
        "nodes": [
            node("Constant", [], ["one"], value_ints=[1]),
            node("Reshape", ["i", "one"], ["from"]), node("Add", ["from", "one"], ["to"]),
            node("Concat", ["x"] * 5, ["ten"], axis=0),
            node("Slice", ["ten", "from", "to"], ["part"]),
        ],
        "stacked": [info("part", [1])],
    }
    operators = take(counted(9, **given))[1]
    # One more is of the attempt to convert all iterations as one; no output depends on it.
    assert "repeat" not in operators and operators.count("mul") == 10


def test_local_functions_are_expanded():
    function = helper.make_function(
        "own", "Twice", ["a"], ["b"],
        [node("Constant", [], ["two"], value_float=2.0), node("Mul", ["a", "two"], ["b"])],
        [helper.make_opsetid("", 21)],
    )
    proto = model([node("Twice", ["x"], ["y"], domain="own")], [info("x", [2])], [info("y", [2])])
    proto.opset_import.append(helper.make_opsetid("own", 1))
    proto.functions.append(function)
    assert take(proto)[1] == ["mul"]


def test_double_is_narrowed_only_where_asked_for():
    proto = model([node("Neg", ["x"], ["y"])], [info("x", [2], TensorProto.DOUBLE)],
                  [info("y", [2], TensorProto.DOUBLE)])
    with pytest.raises(UnsupportedModelError, match="narrow_double=True"):
        take(proto)
    outputs, operators = take(proto, narrow_double=True)
    assert (operators, outputs["y"].type) == (["neg"], "float64")
    assert outputs["y"].operand.data_type == "float32"


@pytest.mark.parametrize(
    ("kind", "carried"),
    [("bool", "uint8"), ("bfloat16", "float32"), ("int16", "int32"), ("int4", "int8"),
     ("float16", "float16"), ("int64", "int64")],
)
def test_how_types_are_carried(kind, carried):
    elem_type = helper.np_dtype_to_tensor_dtype(numpy_type(kind))
    proto = model([node("Transpose", ["x"], ["y"])], [info("x", [2, 3], elem_type)],
                  [info("y", [3, 2], elem_type)])
    outputs, operators = take(proto)
    assert operators == ["transpose"]
    assert (outputs["y"].type, outputs["y"].operand.data_type) == (kind, carried)


def test_types_without_a_carrier_are_refused():
    proto = model([node("Neg", ["x"], ["y"])], [info("x", [2], TensorProto.FLOAT8E5M2)],
                  [info("y", [2], TensorProto.FLOAT8E5M2)])
    with pytest.raises(UnsupportedModelError, match="float8_e5m2 is no WebNN type"):
        take(proto)


def test_requirements():
    proto = model(
        [node("Reshape", ["x", "s"], ["y"])],
        [info("x", ["n", 4]), info("s", [2], TensorProto.INT64)], [info("y", None)],
    )
    x, s = requirements(proto)
    assert (x.name, x.type, x.shape) == ("x", "float32", ("n", 4))
    assert (x.needs_shape, x.needs_value) == (True, False)
    assert (s.needs_shape, s.needs_value) == (False, True)
    x, s = requirements(proto, {"x": (2, 4), "s": np.array([4, 2])})
    assert not (x.needs_shape or x.needs_value or s.needs_shape or s.needs_value)


@pytest.mark.parametrize("opset", [11, 12, 13, 21])
def test_empty_shapes_in_shape_arithmetic(opset):
    """A tensor without elements has no place in a graph, but may be part of a shape."""
    nodes = [node("Shape", ["s"], ["none"]), node("Concat", ["none", "two"], ["shape"], axis=0),
             node("Reshape", ["x", "shape"], ["y"])]
    proto = model(nodes, [info("x", [2]), info("s", [])], [info("y", [2, 1])],
                  {"two": np.array([2, 1])}, opset=opset)
    outputs, operators = take(proto)
    assert outputs["y"].shape == (2, 1)
    assert operators == ["reshape"]




def test_only_types_that_several_could_be_need_a_schema(monkeypatch):
    """ONNX makes the schemas of all its operators for the first one."""
    asked = []
    schema_of = functions.schema_of
    monkeypatch.setattr(
        functions, "schema_of", lambda *key: asked.append(key[1]) or schema_of(*key)
    )
    nodes = [node("Softmax", ["x"], ["p"]), node("Add", ["p", "x"], ["y"])]
    outputs, _ = take(model(nodes, [info("x", [2, 3])], [info("y", None)]))
    assert (outputs["y"].type, asked) == ("float32", [])
    nodes = [node("Greater", ["x", "x"], ["y"])]
    outputs, _ = take(model(nodes, [info("x", [2, 3])], [info("y", None, TensorProto.BOOL)]))
    assert (outputs["y"].type, asked) == ("bool", ["Greater"])
    nodes = [node("Relu", ["x"], ["y"])]
    ends = [info(name, [2], TensorProto.DOUBLE) for name in "xy"]
    outputs, _ = take(model(nodes, ends[:1], ends[1:]), narrow_double=True)
    assert (outputs["y"].type, asked) == ("float64", ["Greater", "Relu"])


@pytest.mark.parametrize(("operator", "axes", "shape"), [
    ("Unsqueeze", [1, 0], (1, 1, 3, 2)), ("Unsqueeze", [-2, -1], (3, 2, 1, 1)),
    ("Unsqueeze", [-1, 0], (1, 3, 2, 1)), ("Squeeze", [-1, 0, 2], (3, 2)),
])
def test_axes_of_known_values_in_any_order(operator, axes, shape):
    """Attributes, before opset 13: they count in the result of Unsqueeze, the input of Squeeze."""
    x = np.arange(6, dtype=np.float32).reshape((1, 3, 1, 2, 1) if operator == "Squeeze" else (3, 2))
    proto = model([node(operator, ["x"], ["y"], axes=axes)], [], [info("y", None)], {"x": x}, 11)
    outputs, operators = take(proto)
    assert not operators
    np.testing.assert_array_equal(outputs["y"].array, x.reshape(shape))


def test_sums_of_squares_keep_their_type():
    x = np.array([[3, 4]], np.int32)
    proto = model([node("ReduceSumSquare", ["x"], ["y"], keepdims=0)], [],
                  [info("y", [], TensorProto.INT32)], {"x": x}, 13)
    outputs, _ = take(proto)
    assert (outputs["y"].type, outputs["y"].shape) == ("int32", ())

"""``Session`` in contexts with "dynamic-shapes": one graph with named dimensions for all shapes,
equal to the graph of each shape; the models that need several, and those that are left to graphs of
their own."""

from __future__ import annotations

import random
import time

import numpy as np
import pytest
from onnx import TensorProto, helper

from tests.support.cases.exported_encoder import encoder
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import classifier, info, model, reference
from webnn_vk.onnx import Session

node = helper.make_node
INT64 = TensorProto.INT64
DRAFT = ["dynamic-shapes"]


@pytest.fixture(params=["cpu", "vulkan"])
def named(request):
    if request.param == "vulkan":
        request.getfixturevalue("vulkan")
    with open_context(device=request.param, experimental=DRAFT) as context:
        yield context


def sentences(rng, batch, tokens, vocabulary=100):
    mask = np.ones((batch, tokens), np.int64)
    mask[-1, tokens // 2 + 1 :] = 0
    return {"input_ids": rng.integers(0, vocabulary, (batch, tokens)), "attention_mask": mask}


def close(got, wanted):
    for a, b in zip(got, wanted, strict=True):
        assert a.dtype == b.dtype and a.shape == b.shape
        assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.device
def test_one_build_serves_all_shapes_on_gpus(vulkan, request):
    """With the kernels of GPUs, which fuse attention."""
    limits = {"device_type": "discrete"}
    with open_context("vulkan", limits=limits, experimental=DRAFT) as named:
        test_one_build_serves_all_shapes(named, request)


@pytest.mark.sample(0.5)
def test_one_build_serves_all_shapes(named, request):
    full = request.config.option.explore and named.device_info.is_vulkan
    rng = np.random.default_rng(3)
    large = {"layers": 6, "width": 384, "heads": 12, "inner": 1536, "vocabulary": 30522}
    proto = encoder(rng, **large if full else {})
    batch, tokens = (8, 128) if full else (4, 20)
    session = Session(proto, named, dimensions={"batch": batch, "tokens": tokens})
    words = 30522 if full else 100
    graph = session.graph(sentences(rng, batch, tokens, words))
    assert {str(d) for d in graph.inputs["input_ids"].shape} == {"batch", "tokens"}
    assert not graph.report().notes
    static = Session(proto, open_context(device=None if full else "cpu"), keep=1)
    pick, ratios, compilations = random.Random(4), [], len(graph._shapes._compiled)
    shapes = [(1, 1), (batch, tokens)] + [
        (pick.randint(1, batch), pick.randint(1, tokens)) for _ in range(198 if full else 4)
    ]
    with static._context:
        for shape in shapes:
            feeds = sentences(rng, *shape, words)
            times = []
            for _ in range(3 if full else 1):
                start = time.process_time()
                got = session.run(None, feeds)
                times.append(time.process_time() - start)
            ratios.append(times[0] / min(times[-2:]))
            close(got, static.run(None, feeds))
            assert session.graph(feeds) is graph
    assert len(graph._shapes._compiled) - compilations <= 2
    if full:
        assert np.median(ratios) <= 1.2


@pytest.mark.device
def test_memory_is_that_of_the_largest_static_graph(vulkan):
    proto = encoder(np.random.default_rng(1), width=128, longest=40)
    bytes_of = {}
    for draft in ([], DRAFT):
        with open_context(experimental=draft) as context:
            session = Session(proto, context, dimensions={"batch": 3, "tokens": 40})
            for shape in [(3, 40), *([(1, 1), (2, 7), (1, 40)] if draft else [])]:
                session.run(None, sentences(np.random.default_rng(2), *shape))
            context.fence().wait()
            bytes_of[bool(draft)] = context._state.device.memory_in_use()
    assert bytes_of[True] <= 1.1 * bytes_of[False]


@pytest.mark.sample(0.5)
def test_larger_sizes_build_again(named):
    session = Session(encoder(np.random.default_rng(1)), named)
    rng, graphs = np.random.default_rng(2), []
    for tokens in (3, 16, 17, 30):
        feeds = sentences(rng, 2, tokens)
        close(session.run(None, feeds), reference(session._model.proto, feeds))
        graphs.append(session.graph(feeds))
    assert graphs[0] is graphs[1] is not graphs[2] is graphs[3]
    assert [d.max_size for d in graphs[3].inputs["input_ids"].shape] == [16, 32]


def test_pictures(named):
    proto = classifier(np.random.default_rng(0), ("n", 3, "h", "w"))
    session = Session(proto, named)
    for shape in ((2, 3, 8, 8), (1, 3, 8, 8), (3, 3, 8, 8)):
        feeds = {"image": np.random.default_rng(1).normal(size=shape).astype(np.float32)}
        close(session.run(None, feeds), reference(proto, feeds))


#: Nodes x [n, m] → y, constants, and how many graphs the shapes (1, 4), (3, 4), (5, 2) need.
X = [info("x", ["n", "m"])]
ARITHMETIC = {
    "halves": (
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["m"]),
         node("Div", ["m", "two"], ["h"]), node("Unsqueeze", ["h", "axis"], ["e"]),
         node("Slice", ["x", "axis", "e", "last"], ["y"])],
        {"one": 1, "two": 2, "axis": [0], "last": [-1]}, 1,
    ),
    "a range, and a size as data": (
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["m"]),
         node("Range", ["zero", "m", "one"], ["r"]), node("Add", ["r", "m"], ["t"]),
         node("Cast", ["t"], ["f"], to=1), node("Add", ["x", "f"], ["y"])],
        {"zero": 0, "one": 1}, 1,
    ),
    "a constant of the shape": (
        [node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["z"]),
         node("Concat", ["x", "z"], ["y"], axis=0)], {}, 1,
    ),
    "tiles and a product of sizes": (
        [node("Shape", ["x"], ["s"]), node("ReduceProd", ["s"], ["p"], keepdims=1),
         node("Tile", ["x", "twice"], ["t"]), node("Concat", ["p", "all"], ["q"], axis=0),
         node("Reshape", ["t", "q"], ["y"])], {"twice": [1, 2], "all": [-1]}, 1,
    ),
    "from the end": (
        [node("Slice", ["x", "start", "end", "axes"], ["y"])],
        {"start": [-2, 0], "end": [2**62, -1], "axes": [1, 0]}, 2,
    ),
    "the smaller of two": (
        [node("Shape", ["x"], ["s"]), node("Slice", ["s", "zero", "one"], ["n"]),
         node("Slice", ["s", "one", "two"], ["m"]), node("Min", ["n", "m"], ["l"]),
         node("Slice", ["x", "zero", "l", "one"], ["y"])],
        {"zero": [0], "one": [1], "two": [2]}, 2,
    ),
    "enlarged": (
        [node("Unsqueeze", ["x", "axes"], ["i"]),
         node("Constant", [], ["f"], value_floats=[1.0, 1.0, 2.0, 3.0]),
         node("Resize", ["i", "", "f"], ["y"], mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="asymmetric")], {"axes": [0, 1]}, 1,
    ),
    "enlarged to sizes in floats": (
        [node("Unsqueeze", ["x", "axes"], ["i"]), node("Shape", ["i"], ["s"]),
         node("Slice", ["s", "two", "four"], ["t"]), node("Cast", ["t"], ["f"], to=1),
         node("Constant", [], ["by"], value_floats=[2.0, 1.7]),
         node("Mul", ["f", "by"], ["g"]), node("Floor", ["g"], ["h"]),
         node("Cast", ["h"], ["j"], to=7), node("Slice", ["s", "zero", "two"], ["k"]),
         node("Concat", ["k", "j"], ["l"], axis=0),
         node("Resize", ["i", "", "", "l"], ["y"], mode="nearest", nearest_mode="floor",
              coordinate_transformation_mode="asymmetric")],
        {"axes": [0, 1], "zero": [0], "two": [2], "four": [4]}, 3,
    ),
    "halves in floats": (
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["m"]),
         node("Cast", ["m"], ["f"], to=1), node("Constant", [], ["two"], value_float=2.0),
         node("Div", ["f", "two"], ["g"]), node("Ceil", ["g"], ["h"]),
         node("Cast", ["h"], ["j"], to=7), node("Unsqueeze", ["j", "axis"], ["e"]),
         node("Slice", ["x", "axis", "e", "last"], ["a"]),
         node("Cast", ["g"], ["k"], to=7), node("Add", ["k", "last"], ["o"]),
         node("Add", ["o", "both"], ["p"]), node("Tile", ["a", "p"], ["y"])],
        {"one": 1, "axis": [0], "last": [-1], "both": [1, 2]}, 1,
    ),
    "a part of a size as data": (
        [node("Shape", ["x"], ["s"]), node("Gather", ["s", "one"], ["m"]),
         node("Cast", ["m"], ["f"], to=1), node("Constant", [], ["c"], value_float=0.3),
         node("Mul", ["f", "c"], ["g"]), node("Div", ["g", "f"], ["h"]),
         node("Sqrt", ["g"], ["i"]), node("Add", ["x", "i"], ["a"]),
         node("Add", ["a", "h"], ["y"])], {"one": 1}, 1,
    ),
    "a remainder": (
        [node("Shape", ["x"], ["s"]), node("Mod", ["s", "three"], ["r"]),
         node("Sub", ["s", "r"], ["t"]), node("Add", ["t", "one"], ["u"]),
         node("ConstantOfShape", ["u"], ["z"]), node("ReduceSum", ["x"], ["w"], keepdims=0),
         node("Add", ["z", "w"], ["y"])], {"three": 3, "one": 1}, 1,
    ),
    "a table by a size": (
        [node("EyeLike", ["x"], ["e"]), node("Add", ["x", "e"], ["y"])], {}, 3,
    ),
}


@pytest.mark.sample(0.5)
@pytest.mark.parametrize("name", ARITHMETIC)
def test_arithmetic_of_shapes(named, name):
    nodes, constants, graphs = ARITHMETIC[name]
    stored = {k: np.array(v, np.int64) for k, v in constants.items()}
    proto = model(nodes, X, [info("y", None)], stored)
    session, found = Session(proto, named), set()
    for n, m in ((3, 4), (1, 4), (5, 2), (3, 4)):
        feeds = {"x": np.random.default_rng(n).normal(size=(n, m)).astype(np.float32)}
        if name == "from the end" and n == 1:
            continue  # nothing is left
        close(session.run(None, feeds), reference(proto, feeds))
        found.add(session.graph(feeds))
    assert len(found) <= graphs


def test_what_needs_graphs_of_its_own_says_so(named):
    stored = {"k": np.array([2], np.int64)}
    nodes = [node("Shape", ["x"], ["s"]), node("Cast", ["s"], ["f"], to=1),
             node("Sqrt", ["f"], ["r"]), node("Cast", ["r"], ["i"], to=7),
             node("Tile", ["x", "i"], ["y"])]
    proto = model(nodes, X, [info("y", None)], stored)
    session = Session(proto, named)
    for shape in ((4, 9), (2, 4)):
        feeds = {"x": np.ones(shape, np.float32)}
        close(session.run(None, feeds), reference(proto, feeds))
        (note,) = session.graph(feeds).report().notes
        assert "without named dimensions" in note and "Tile" in note
        assert note in str(session.graph(feeds).report())


def test_empty_inputs_have_graphs_of_their_own(named):
    stored = {"w": np.ones((4, 2), np.float32)}
    proto = model([node("MatMul", ["x", "w"], ["y"])], [info("x", ["n", 4])],
                  [info("y", ["n", 2])], stored)
    session = Session(proto, named)
    (y,) = session.run(None, {"x": np.ones((3, 4), np.float32)})
    assert y.shape == (3, 2)
    assert session.graph({"x": np.ones((5, 4), np.float32)}).inputs["x"].shape[0].name == "n"


def test_without_the_draft_nothing_changes(context):
    session = Session(encoder(np.random.default_rng(1)), context)
    rng = np.random.default_rng(2)
    first, second = (session.graph(sentences(rng, 1, n)) for n in (3, 5))
    assert first is not second and not first.report().notes
    assert first.inputs["input_ids"].shape == (1, 3)


@pytest.mark.parametrize("wrong", [{"word": 4}, {"tokens": 0}, {"tokens": "4"}, {"tokens": True}])
def test_wrong_dimensions_are_refused(named, wrong):
    with pytest.raises(ValueError, match="dimensions: "):
        Session(encoder(np.random.default_rng(1)), named, dimensions=wrong)


def constants(**values):
    return {name: np.array(value) for name, value in values.items()}


#: Nodes from inputs x [n, m], z [n] and w [m] to y; none reads elements of x.
BY_SHAPE = {
    "mask": ([node("Shape", ["x"], ["s"]), node("ConstantOfShape", ["s"], ["o"]),
              node("Trilu", ["o"], ["y"], upper=0)], "x", {}),
    "positions": ([node("Shape", ["x"], ["s"], start=1), node("Squeeze", ["s"], ["k"]),
                   node("Range", ["a", "k", "b"], ["y"])], "x", constants(a=0, b=1)),
    "count": ([node("Size", ["x"], ["y"])], "x", {}),
    "other input's size": ([node("Shape", ["x"], ["s"]), node("Expand", ["w", "s"], ["y"])],
                           "xw", {}),
    "a condition": ([node("Shape", ["x"], ["s"], start=1), node("Min", ["s", "a"], ["t"]),
                     node("Slice", ["z", "b", "t"], ["y"])], "xz", constants(a=[4], b=[0])),
    "an operator's condition": ([
        node("Trilu", ["x"], ["t"]), node("Shape", ["t"], ["s"], end=1),
        node("Cast", ["s"], ["f"], to=TensorProto.FLOAT), node("Add", ["z", "f"], ["y"])], "xz",
        {}),
    "a size that an input has": ([node("Shape", ["x"], ["s"], start=1),
                                  node("Concat", ["s", "a"], ["t"], axis=0),
                                  node("Reshape", ["w", "t"], ["y"])], "xw", constants(a=[1])),
}


@pytest.mark.filterwarnings("ignore:build. no output depends on:RuntimeWarning")
@pytest.mark.parametrize("name", BY_SHAPE)
def test_dimensions_that_reach_the_outputs_by_shape_alone(named, name):
    nodes, names, more = BY_SHAPE[name]
    shapes = {"x": ["n", "m"], "z": ["n"], "w": ["m"]}
    proto = model(nodes, [info(n, shapes[n]) for n in names], [info("y", None)], more, opset=17)
    proto.graph.output[0].ClearField("type")
    session = Session(proto, named)
    for n, m in ((4, 8), (8, 4), (3, 3)):
        feeds = {"x": np.ones((n, m), np.float32), "z": np.arange(n, dtype=np.float32),
                 "w": np.arange(m, dtype=np.float32)}
        feeds = {n: feeds[n] for n in names}
        close(session.run(None, feeds), reference(proto, feeds))

"""Options that are computed from named dimensions: each is checked at dispatch as its number is at
build, and gives the same result."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from tests.support.contexts import open_context
from tests.support.discriminating import anything_passes, assert_allclose
from webnn_vk import MLDynamicDimension, MLGraphBuilder
from webnn_vk.compiler.ops import OPERATORS
from webnn_vk.compiler.types.sizes import sizes_in

N = MLDynamicDimension("n", 6, 0)
SIZES = range(7)
POOLS = ("average_pool2d", "l2_pool2d", "max_pool2d")


def steps(b, a, n, steps, hidden, name, **more):
    gates = 3 if name.startswith("gru") else 4
    method = getattr(b, name)
    weights = a("w", 1, gates * hidden, 2), a("r", 1, gates * hidden, hidden)
    return method(a("a", steps, 1, 2), *weights, n[0], n[1], **more)[-1]


def cell(b, a, hidden, name, size):
    gates = 3 if name.startswith("gru") else 4
    states = [a(f"s{i}", 1, hidden) for i in range(gates - 2)]
    made = getattr(b, name)(
        a("a", 1, 2), a("w", gates * hidden, 2), a("r", gates * hidden, hidden), *states, size
    )
    return made[0] if isinstance(made, list) else made


#: By operator and option: graphs of inputs ``a(name, *shape)`` and the dimension, which the builder
#: accepts for 6 elements. Most are below zero for 0 and 1, and zero for 2.
TABLE = {
    ("reshape", "new_shape"): [lambda b, a, n: b.reshape(a("a", 8), [n - 4, n - 2])],
    ("expand", "new_shape"): [lambda b, a, n: b.expand(a("a", 1), [n - 2])],
    ("tile", "repetitions"): [lambda b, a, n: b.tile(a("a", 3), [n - 2])],
    ("slice", "starts"): [
        lambda b, a, n: b.slice(a("a", 6), [n - 2], [2]),
        lambda b, a, n: b.slice(a("a", n + n), [n - 2], [n]),
        lambda b, a, n: b.slice(a("a", 6), [4 + n // (n - 3) - 2], [2]),
    ],
    ("slice", "sizes"): [
        lambda b, a, n: b.slice(a("a", 6), [1], [n - 2]),
        lambda b, a, n: b.slice(a("a", 6), [1], [11 - n]),
    ],
    ("slice", "strides"): [lambda b, a, n: b.slice(a("a", 6), [0], [5], strides=[n - 2])],
    ("split", "splits"): [lambda b, a, n: b.split(a("a", 6), [n - 2, 8 - n])[0]],
    ("pad", "beginning_padding"): [
        lambda b, a, n: b.pad(a("a", 5), [n - 2], [1]),
        lambda b, a, n: b.pad(a("a", 5), [n - 2], [1], mode="edge"),
        lambda b, a, n: b.pad(a("a", n), [n - 2], [1], mode="reflection"),
    ],
    ("pad", "ending_padding"): [lambda b, a, n: b.pad(a("a", 5), [1], [n - 2], value=3)],
    ("triangular", "diagonal"): [
        lambda b, a, n: b.triangular(a("a", 4, 5), diagonal=n - 3),
        lambda b, a, n: b.triangular(a("a", 4, 5), upper=False, diagonal=(n - 5) * 2**30),
    ],
    ("conv2d", "padding"): [
        lambda b, a, n: b.conv2d(a("a", 1, 1, 8, 5), a("f", 2, 1, 3, 2), padding=[n - 2, 1, 0, 0]),
    ],
    ("conv2d", "strides"): [
        lambda b, a, n: b.conv2d(a("a", 1, 1, 8, 5), a("f", 2, 1, 3, 2), strides=[n - 2, 1]),
    ],
    ("conv2d", "dilations"): [
        lambda b, a, n: b.conv2d(a("a", 1, 1, 9, 5), a("f", 2, 1, 3, 2), dilations=[n - 2, 1]),
    ],
    ("conv2d", "groups"): [
        lambda b, a, n: b.conv2d(a("a", 1, 4, 5, 5), a("f", 4, 1, 2, 2), groups=n - 2),
        lambda b, a, n: b.conv2d(a("a", 1, n, 5, 5), a("f", n, 1, 2, 2), groups=n),
    ],
    ("conv_transpose2d", "padding"): [
        lambda b, a, n: b.conv_transpose2d(
            a("a", 1, 1, 8, 5), a("f", 1, 2, 3, 2), padding=[n - 2, 1, 0, 0]),
    ],
    ("conv_transpose2d", "strides"): [
        lambda b, a, n: b.conv_transpose2d(
            a("a", 1, 1, 3, 5), a("f", 1, 2, 3, 2), strides=[n - 2, 1]),
    ],
    ("conv_transpose2d", "dilations"): [
        lambda b, a, n: b.conv_transpose2d(
            a("a", 1, 1, 3, 5), a("f", 1, 2, 3, 2), dilations=[n - 2, 1]),
    ],
    ("conv_transpose2d", "output_padding"): [
        lambda b, a, n: b.conv_transpose2d(
            a("a", 1, 1, 3, 5), a("f", 1, 2, 3, 2), strides=[5, 1], output_padding=[n - 2, 0]),
    ],
    ("conv_transpose2d", "output_sizes"): [
        lambda b, a, n: b.conv_transpose2d(
            a("a", 1, 1, 2, 5), a("f", 1, 2, 3, 2), strides=[3, 1], padding=[1, 1, 0, 0],
            output_sizes=[n, 6]),
        lambda b, a, n: b.conv_transpose2d(
            a("a", 1, 1, 1, 5), a("f", 1, 2, 3, 2), strides=[9, 1], padding=[2, 2, 0, 0],
            output_sizes=[n - 2, 6]),
    ],
    ("conv_transpose2d", "groups"): [
        lambda b, a, n: b.conv_transpose2d(a("a", 1, 4, 5, 5), a("f", 4, 1, 2, 2), groups=n - 2),
        lambda b, a, n: b.conv_transpose2d(a("a", 1, n, 5, 5), a("f", n, 1, 2, 2), groups=n),
    ],
    ("resample2d", "sizes"): [
        lambda b, a, n: b.resample2d(a("a", 1, 1, 5, 3), sizes=[n - 2, 2]),
        lambda b, a, n: b.resample2d(a("a", 1, 1, 5, 3), mode="linear", sizes=[n - 2, 2]),
    ],
    **{(name, "steps"): [
        lambda b, a, n, name=name: steps(b, a, (n - 2, 3), 4, 3, name),
        lambda b, a, n, name=name: steps(b, a, (n, 3), n, 3, name, return_sequence=True),
    ] for name in ("gru", "lstm")},
    **{(name, "hidden_size"): [
        lambda b, a, n, name=name: steps(b, a, (3, n - 2), 3, 4, name),
        lambda b, a, n, name=name: steps(b, a, (3, n), 3, n, name),
    ] for name in ("gru", "lstm")},
    **{(name, "hidden_size"): [
        lambda b, a, n, name=name: cell(b, a, 4, name, n - 2),
        lambda b, a, n, name=name: cell(b, a, n, name, n),
    ] for name in ("gru_cell", "lstm_cell")},
    **{(name, option): [
        lambda b, a, n, name=name, option=option, more=more, tail=tail: getattr(b, name)(
            a("a", 1, 2, 9, 7), **{option: [n - 2, *tail]}, **more)
    ] for name in POOLS for option, tail, more in (
        ("window_dimensions", (2,), {}),
        ("padding", (1, 0, 0), {"window_dimensions": [5, 2]}),
        ("strides", (1,), {"window_dimensions": [3, 2]}),
        ("dilations", (1,), {"window_dimensions": [3, 2]}),
        ("output_sizes", (6,), {"window_dimensions": [3, 2], "strides": [2, 1]}),
    )},
}
CASES = [
    pytest.param(make, id=f"{operator}-{option}-{number}")
    for (operator, option), makers in TABLE.items() for number, make in enumerate(makers)
]


@pytest.fixture(scope="module", params=[
    ("cpu", "numpy"), ("cpu", "onnxruntime"),
    pytest.param(("vulkan", "numpy"), marks=pytest.mark.device),
], ids="-".join)
def context(request):
    device, engine = request.param
    if device == "vulkan":
        request.getfixturevalue("vulkan")
    options = {"experimental": ["dynamic-shapes"], "cpu_engine": engine}
    with open_context(device=device, **options) as context:
        yield context


def built(context, make, dimension, shapes):
    """The graph for a dimension or a number; the inputs' shapes are added to ``shapes``."""
    builder = MLGraphBuilder(context)

    def given(name, *shape):
        shapes[name] = shape
        return builder.input(name, {"data_type": "float32", "shape": list(shape)})

    outputs = {"x same": builder.identity(given("x", dimension))}
    outputs["y"] = make(builder, given, dimension)
    return builder.build(outputs).result()


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("make", CASES)
def test_options_at_dispatch_are_as_numbers_at_build(context, make, rng):
    graph, accepted = built(context, make, N, {}), 0
    for size in SIZES:
        shapes, why = {}, ""
        try:
            known = built(context, make, size, shapes)
        except (TypeError, ZeroDivisionError) as error:
            why = str(error).partition("; WebNN infers")[0]
        feeds = {name: rng.uniform(-1, 1, s).astype(np.float32) for name, s in shapes.items()}
        if why:
            for call in (
                partial(context.compute, graph, feeds), partial(graph.compute_shapes, shapes)
            ):
                with pytest.raises(TypeError) as refused:
                    call()
                message = str(refused.value)
                assert message == f"{why} (with n {size})" or "division by zero in" in message
            continue
        wanted, found = (context.compute(g, feeds)["y"] for g in (known, graph))
        assert graph.compute_shapes(shapes)["y"] == found.shape == wanted.shape
        with anything_passes("some results have no element, or one"):
            assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
        accepted += 1
    assert accepted


def test_the_table_has_every_option():
    known = {(o.name, p.name) for o in OPERATORS.values() for p in o.arguments if p.sized}
    assert known == TABLE.keys()


def test_what_has_to_be_known_at_build():
    with open_context(device="cpu", experimental=["dynamic-shapes", "subgraph"]) as context:
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [N]})
        state = MLGraphBuilder(context)
        body = state.build_subgraph({
            "s": state.relu(state.input("s", {"data_type": "float32", "shape": []}))
        })
        message = ".*n.* is known only at dispatch; a value that is known at build is expected"
        for what, call in {
            r"arg_max \[a\]: axis": lambda: builder.arg_max(x, N - 1, label="a"),
            r"split \[a\]: splits": lambda: builder.split(x, N - 1, label="a"),
            "loop: count": lambda: builder.loop(body, N - 1, {}),
        }.items():
            with pytest.raises(TypeError, match=f"^{what}: {message}"):
                call()
        size = next(sizes_in(builder.concat([x, x], 0)._descriptor.shape)) // 2 - 1
        for operator in OPERATORS.values():
            for p in operator.arguments:
                for value in () if p.sized else (size, [0, size]):
                    with pytest.raises(TypeError, match=f"^here: {message}"):
                        p.convert(value, "here")


def test_dimensions_without_a_size():
    """Of no input, of another size than its input, and divided by zero."""
    with open_context(device="cpu", experimental=["dynamic-shapes"]) as context:
        builder = MLGraphBuilder(context)
        y = builder.input("y", {"data_type": "float32", "shape": [6]})
        with pytest.raises(TypeError, match=r"^reshape \[a\]: new_shape.*'n': no input has it"):
            builder.reshape(y, [N], label="a")
        x = builder.input("x", {"data_type": "float32", "shape": [N]})
        with pytest.raises(TypeError, match=r"^reshape \[a\]: .*division by zero"):
            builder.reshape(y, [N // 0], label="a")
        halves = builder.input("halves", {"data_type": "float32", "shape": [N // (N - 3)]})
        outputs = {"x": builder.relu(x), "y": builder.relu(halves), "z": builder.relu(y)}
        graph = builder.build(outputs).result()
        assert graph.compute_shapes({"x": [4], "halves": [4], "y": [6]})["y"] == (4,)
        for size, found in ((3, "a division by zero"), (2, "-2")):
            with pytest.raises(TypeError, match=f"'halves' .*, is {found} for n {size}"):
                graph.compute_shapes({"x": [size], "halves": [0], "y": [6]})

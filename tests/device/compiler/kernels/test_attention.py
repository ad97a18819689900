"""The attention kernel compared with the NumPy reference, and fused graphs with unfused ones."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.cases.attention_forms import Form, describe, masks_that_show
from tests.support.comparing import EACH_WAY, WAYS, assert_close, profile_for
from tests.support.contexts import open_context
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.running import device_profile, node_of, run, schedules_of, software_profile
from webnn_vk import MLGraphBuilder
from webnn_vk.compiler.kernels import solver_of
from webnn_vk.compiler.kernels.node import KernelNode


def drawn(rng, *shape, data_type="float32"):
    return rng.uniform(-2, 2, shape).astype(data_type)


CASES = {
    # query, key, value, other operands
    "tiles with edges": ((2, 3, 37, 32), (2, 3, 70, 32), (2, 3, 70, 36), {}),
    "odd rows": ((2, 13, 5), (2, 41, 5), (2, 41, 7), {}),
    "grouped heads": ((2, 2, 3, 9, 8), (2, 2, 1, 50, 8), (2, 2, 1, 50, 8), {"mask": (50,)}),
    "causal": ((40, 8), (45, 8), (45, 8), {"causal": True, "seen": (40, 45), "unseen": -1.0}),
    "next token": ((4, 1, 16), (4, 300, 16), (4, 300, 16), {"causal": True}),
}


def case_of(shapes, more, data_type):
    rng = np.random.default_rng(5)
    given = dict(more)
    if "mask" in given:
        given["mask"] = drawn(rng, *given["mask"], data_type=data_type)
    if "seen" in given:
        given["seen"] = rng.integers(0, 2, given["seen"]).astype(np.uint8)
    operands = [drawn(rng, *shape, data_type=data_type) for shape in shapes]
    return node_of("attention", *operands, scale=0.25, **given)


@EACH_WAY
@pytest.mark.parametrize("case", CASES)
def test_as_the_reference(case, way, data_type):
    require_vulkan()
    *shapes, more = CASES[case]
    node, arrays = case_of(shapes, more, data_type)
    assert_close(node, arrays, profile_for(way), 4e-6)


LENGTHS = {
    "one query": ((4, 1, 32), (4, 100, 32), (4, 100, 32), [1, 7, 64, 100]),
    "grouped heads": ((2, 3, 1, 16), (2, 1, 70, 16), (2, 1, 70, 16), [1, 33]),
    "many queries": ((2, 20, 16), (2, 90, 16), (2, 90, 24), [20, 21, 57, 90]),
    "odd": ((3, 5, 7), (3, 40, 7), (3, 40, 9), [5, 6, 39]),
    "fewer keys than queries": ((2, 9, 8), (2, 30, 8), (2, 30, 8), [1, 4]),
}


@pytest.mark.parametrize(("case", "causal", "way"), [
    (case, (number + turn) % 2 > 0, way)
    for number, case in enumerate(LENGTHS) for turn, way in enumerate(WAYS)
])
def test_keys_beyond_the_valid_length_are_not_read(case, causal, way):
    require_vulkan()
    *shapes, lengths = LENGTHS[case]
    rng = np.random.default_rng(11)
    for length in lengths:
        query, key, value = (drawn(rng, *shape) for shape in shapes)
        short = [key[..., :length, :], value[..., :length, :]]
        key[..., length:, :] = value[..., length:, :] = np.nan
        count = np.array([length], np.uint32)
        node, arrays = node_of(
            "attention", query, key, value, length=count, causal=causal, scale=0.25
        )
        assert_close(node, arrays, profile_for(way), 4e-6)
        (result,) = run(node, arrays, profile_for(way))
        if not causal or length >= query.shape[-2]:
            plain, given = node_of("attention", query, *short, causal=causal, scale=0.25)
            expected = plain.evaluate(given.get)[0]
            assert_allclose(result, expected, rtol=1e-5, atol=1e-5)
        assert np.isfinite(result).all()


@pytest.mark.parametrize("queries", [1, 3, 9])
def test_every_schedule_of_processors(queries):
    """Of one SIMD group: with texels and subgroups, storage buffers and shared memory. The last
    tile isn't full of keys, and NaN follow them."""
    profile = software_profile()
    rng = np.random.default_rng(queries)
    query, key, value = drawn(rng, 2, queries, 8), drawn(rng, 2, 75, 8), drawn(rng, 2, 75, 36)
    length = 70
    key[:, length:] = value[:, length:] = np.nan
    node, arrays = node_of(
        "attention", query, key, value, length=np.array([length], np.uint32), scale=0.25
    )
    seen = set()
    for schedule in schedules_of(node, profile):
        if (schedule["LX"], schedule["LY"]) != (8, 1):
            continue
        assert_close(node, arrays, profile, 4e-6, schedule)
        solver, problem = solver_of(KernelNode.of(node))
        (step,) = solver.lowered(KernelNode.of(node), problem, schedule, profile)
        seen.add((schedule["TM"], schedule.load, dict(step.spec.options)["subgroup_sums"]))
    needed = {"texel_buffers", "subgroup_arithmetic", "subgroup_shuffle"}
    exchanges = needed <= profile.features and profile.subgroup_size == 8
    ways = {("storage", False), *[("texel", True)] * exchanges}
    assert seen == {(tall, *way) for tall in (8, 4, 2, 1) for way in ways}


def tiles(node, profile):
    return [s for s in schedules_of(node, profile) if s.kernel == "attention_tiled"]


def assert_tiles_compute(node, arrays, lanes):
    """The schedules with tiles of this many lanes compute the same as the reference."""
    profile = device_profile(device_type="discrete")
    expected = node.evaluate(arrays.get)[0].astype(np.float64)
    half = 2.0**-10 if "float16" in {str(a.dtype) for a in arrays.values()} else 0.0
    schedules = [s for s in tiles(node, profile) if s["LX"] in lanes]
    assert schedules
    for schedule in schedules:
        (result,) = run(node, arrays, profile, schedule)
        assert_allclose(
            result.astype(np.float64), expected, rtol=8e-6 + half, atol=8e-6, err_msg=str(schedule)
        )


# Drivers' compilers take seconds for these kernels: cases share one, or two.
TILED = {
    "edges of all tiles": ((2, 3, 37, 20), (2, 3, 70, 20), (2, 3, 70, 36), {}),
    "whole tiles": ((1, 64, 32), (1, 64, 32), (1, 64, 32), {}),
    "grouped heads": ((2, 2, 3, 9, 8), (2, 2, 1, 50, 8), (2, 2, 1, 50, 8), {"mask": (50,)}),
    "causal": ((40, 8), (45, 8), (45, 8), {"causal": True, "seen": (40, 45), "unseen": -1.0}),
    "head of 64": ((150, 64), (150, 64), (150, 64), {"causal": True}),
    "head of 96": ((33, 96), (130, 96), (130, 96), {}),
    "head of 128": ((2, 65, 128), (2, 129, 128), (2, 129, 128), {"mask": (2, 65, 129)}),
    "long keys": ((3, 5, 16), (3, 2000, 16), (3, 2000, 16), {"mask": (2000,)}),
    "few keys": ((3, 70, 32), (3, 2, 32), (3, 2, 32), {}),
}


@pytest.mark.parametrize("case", ["edges of all tiles", "grouped heads", "causal"])
def test_tiles_as_the_reference(case):
    require_vulkan()
    *shapes, more = TILED[case]
    assert_tiles_compute(*case_of(shapes, more, "float32"), lanes=(8,))


@pytest.mark.explore
@pytest.mark.parametrize("data_type", ["float32", "float16"])
@pytest.mark.parametrize("case", TILED)
def test_all_tiles_as_the_reference(case, data_type):
    require_vulkan()
    *shapes, more = TILED[case]
    assert_tiles_compute(*case_of(shapes, more, data_type), lanes=(8, 16))


@pytest.mark.parametrize(("data_type", "causal", "softcap"), [
    ("float32", False, 0.0), ("float32", True, 0.7), ("float16", True, 0.0),
])
def test_tiles_of_valid_keys(data_type, causal, softcap):
    """None, fewer than queries and than a tile has, whole tiles, all, and more than there are. The
    others are not read."""
    require_vulkan()
    rng = np.random.default_rng(9)
    for length in (0, 1, 31, 32, 33, 37, 64, 97, 130, 500):
        query, key, value, mask = (drawn(rng, *shape, data_type=data_type) for shape in (
            (2, 3, 37, 20), (2, 1, 130, 20), (2, 1, 130, 36), (3, 37, 130)
        ))
        key[..., length:, :] = value[..., length:, :] = mask[..., length:] = np.nan
        seen = rng.integers(0, 2, (37, 130)).astype(np.uint8)
        more = {"mask": mask, "seen": seen, "unseen": -1.0} if softcap else {}
        node, arrays = node_of(
            "attention", query, key, value, length=np.array([length], np.uint32), causal=causal,
            softcap=softcap, scale=0.25, **more,
        )
        first = tiles(node, profile_for("discrete"))[0]
        assert_close(node, arrays, profile_for("discrete"), 4e-6, first)


def test_capped_scores_of_tiles():
    """Infinite scores are bounded, too; a NaN is none. A mask is added behind the bound."""
    require_vulkan()
    rng, cap = np.random.default_rng(7), 1.5
    query, key, value = (drawn(rng, *shape) for shape in ((40, 8), (45, 8), (45, 8)))
    query[3], query[4], query[5] = 0, 0, np.nan
    query[3, 2], query[4, 0] = np.inf, 3e38
    mask = np.zeros((40, 45), np.float32)
    mask[6], mask[7, :40] = -np.inf, -np.inf
    node, arrays = node_of("attention", query, key, value, mask=mask, softcap=cap)
    first = tiles(node, profile_for("discrete"))[0]
    (result,) = run(node, arrays, profile_for("discrete"), first)
    signs = np.where(key[:, [2, 0]].T > 0, cap, -cap)
    weights = np.exp(signs) / np.exp(signs).sum(1, keepdims=True)
    assert_allclose(result[3:5], weights @ value.astype(np.float64), rtol=4e-6, atol=4e-6)
    assert np.isnan(result).all(1).nonzero()[0].tolist() == [5, 6]
    assert_close(node, arrays, profile_for("discrete"), 4e-6, first)


# Parts that end within the keys, at their last, and that have none.
PARTED = {
    "one query": ((2, 1, 24), (2, 300, 24), (2, 300, 36), {}),
    "odd": ((3, 5), (257, 5), (257, 7), {"mask": (257,), "seen": (3, 257), "unseen": -1.0}),
    "odd pieces": ((2, 5), (500, 5), (500, 7), {}),
    "grouped heads": ((2, 2, 16), (2, 1025, 16), (2, 1025, 160), {"causal": True}),
    "vectors ahead": ((2, 32), (400, 32), (400, 32), {"mask": (2, 400)}),
    "eight queries": ((8, 8), (640, 8), (640, 8), {"mask": (8, 640)}),
    # 64 workgroups, the last with 6 keys; the sums of 8 are added up at a time.
    "many keys": ((2, 1, 8), (2, 8070, 8), (2, 8070, 8), {}),
}


def parted(node, turn=0):
    """Of schedules whose keys are divided, those that compute all queries at once, or 8: one of two
    subgroups or of the most, in turn, and of many keys one of the most workgroups."""
    schedules = [
        s for s in schedules_of(node, profile_for("discrete")) if s.kernel == "attention_parted"
    ]
    tall = max(s["TM"] for s in schedules)
    schedules = [s for s in schedules if s["TM"] == tall]
    subgroups = [s for s in schedules if s.parts == 1]
    workgroups = [s for s in schedules if s.parts > 1]
    assert subgroups and subgroups[0]["LZ"] == 2
    assert bool(workgroups) == (node.operands["key"].shape[-2] > 384)
    return [subgroups[-(turn % 2)], *workgroups[-1:]]


@pytest.mark.sample(0.5)
@pytest.mark.parametrize(("case", "data_type"), [
    *((case, "float32") for case in PARTED), ("vectors ahead", "float16"),
    *(pytest.param(case, "float16", marks=pytest.mark.explore)
      for case in PARTED if case != "vectors ahead"),
])
def test_subgroups_and_workgroups_that_divide_the_keys(case, data_type):
    require_vulkan()
    *shapes, more = PARTED[case]
    node, arrays = case_of(shapes, more, data_type)
    schedules = parted(node, [*PARTED].index(case))
    if case == "eight queries":  # the other cases have the smaller tiles
        schedules = schedules[-1:]
        assert schedules[0]["TM"] == 8
    for schedule in schedules:
        assert_close(node, arrays, profile_for("discrete"), 4e-6, schedule)


def test_keys_are_divided_with_every_number_of_vectors_ahead():
    profile = profile_for("discrete")
    found = set()
    for depth in (4, 8, 16, 32):
        node, _ = case_of(((1, depth), (400, depth), (400, 4)), {}, "float32")
        found |= {
            (s.parts > 1, dict(s.numbers).get("AHEAD", 0))
            for s in schedules_of(node, profile) if s.kernel == "attention_parted"
        }
    assert found == {(split, ahead) for split in (False, True) for ahead in (0, 2, 4)}


@pytest.mark.parametrize("length", [1, 130, 256, 599])
def test_parts_of_valid_keys(length):
    """Most parts have none. NaN follow the last valid key."""
    require_vulkan()
    rng = np.random.default_rng(length)
    query, key, value = drawn(rng, 2, 2, 8), drawn(rng, 2, 600, 8), drawn(rng, 2, 600, 36)
    key[:, length:] = value[:, length:] = np.nan
    node, arrays = node_of(
        "attention", query, key, value, length=np.array([length], np.uint32), scale=0.25
    )
    for schedule in parted(node):
        assert_close(node, arrays, profile_for("discrete"), 4e-6, schedule)


def test_steps_behind_workgroups_that_divide_the_keys():
    """The second dispatch applies what is fused."""
    rng = np.random.default_rng(8)
    feeds = {"q": drawn(rng, 2, 1, 64), "k": drawn(rng, 2, 1500, 64), "v": drawn(rng, 2, 1500, 64)}
    with open_context(limits={"device_type": "discrete"}) as context:
        b = MLGraphBuilder(context)
        q, k, v = (
            b.input(name, {"data_type": "float32", "shape": a.shape}) for name, a in feeds.items()
        )
        scores = b.matmul(q, b.transpose(k, permutation=[0, 2, 1]))
        graph = b.build({"y": b.relu(b.matmul(b.softmax(scores, 2), v))}).result()
        result = context.compute(graph, feeds)["y"]
        assert [line.kernel for line in graph.report().lines] == ["attention", "attention_join"]
    weights = np.exp(feeds["q"].astype(float) @ feeds["k"].transpose(0, 2, 1))
    expected = weights / weights.sum(2, keepdims=True) @ feeds["v"]
    assert_allclose(result, np.maximum(expected, 0), rtol=1e-5, atol=1e-6)


def test_parts_without_a_distribution():
    """All scores of a part may be -infinity; a NaN and a row without weights are found anywhere."""
    require_vulkan()
    query, key, value = np.zeros((4, 4), "f"), np.zeros((600, 4), "f"), np.ones((600, 4), "f")
    value[300:] = 3
    mask = np.zeros((4, 600), "f")
    mask[0, :300] = mask[1] = mask[2, 300:] = -np.inf
    mask[3, 599] = np.nan
    for rows, number in ((slice(0, 2), 3), (slice(2, 4), 1)):
        node, arrays = node_of("attention", query[rows], key, value, mask=mask[rows])
        for schedule in parted(node):
            (result,) = run(node, arrays, profile_for("discrete"), schedule)
            assert_allclose(result[0], [number] * 4, rtol=1e-6)
            assert np.isnan(result[1]).all()


def test_large_scores_do_not_overflow_and_rows_without_a_distribution_are_nan():
    require_vulkan()
    query = np.zeros((5, 4), np.float32)
    query[:, 0] = 1
    key, value = np.zeros((40, 4), np.float32), np.ones((40, 4), np.float32)
    key[35] = 3e38
    key[:35, 1] = np.arange(35)
    value[35] = 7
    mask = np.zeros((5, 40), np.float32)
    mask[1, 35], mask[2], mask[3, 5] = -np.inf, -np.inf, np.nan
    mask[4, :35] = -3e38
    plain = node_of("attention", query, key, value, mask=mask)
    all_valid = np.array([40], np.uint32)
    bounded = node_of("attention", query, key, value, mask=mask, length=all_valid)
    tiled = tiles(plain[0], profile_for("discrete"))[0]
    for (node, arrays), way, schedule in (
        (plain, "software", None), (plain, "discrete", None), (plain, "discrete", tiled),
        (bounded, "software", None), (bounded, "discrete", None), (bounded, "discrete", tiled),
    ):
        (result,) = run(node, arrays, profile_for(way), schedule)
        np.testing.assert_array_equal(result[[0, 4]], 7)
        assert_allclose(result[1], 1, rtol=1e-6)
        assert np.isnan(result[2:4]).all()


def encoder(context, length):
    """A layer of two heads with a padding mask, written as exporters do."""
    b = MLGraphBuilder(context)
    x = b.input("x", {"data_type": "float32", "shape": [2, length, 16]})
    mask = b.input("mask", {"data_type": "float32", "shape": [2, 1, 1, length]})

    def split(y, order):
        return b.transpose(b.reshape(y, [2, length, 2, 8]), permutation=order)

    rng = np.random.default_rng(1)
    q, k, v = (b.matmul(x, b.constant(drawn(rng, 16, 16))) for _ in range(3))
    scores = b.matmul(split(q, [0, 2, 1, 3]), split(k, [0, 2, 3, 1]))
    scores = b.add(b.mul(scores, b.constant("float32", 0.125)), mask)
    y = b.matmul(b.softmax(scores, 3), split(v, [0, 2, 1, 3]))
    y = b.reshape(b.transpose(y, permutation=[0, 2, 1, 3]), [2, length, 16])
    y = b.add(y, x)
    centred = b.sub(y, b.reduce_mean(y, axes=[2], keep_dimensions=True))
    variance = b.reduce_mean(
        b.pow(centred, b.constant("float32", 2.0)), axes=[2], keep_dimensions=True
    )
    y = b.div(centred, b.sqrt(b.add(variance, b.constant("float32", 1e-5))))
    halves = b.mul(y, b.constant("float32", 0.5))
    erf = b.erf(b.div(y, b.constant("float32", 2**0.5)))
    return b.build({"y": b.mul(halves, b.add(erf, b.constant("float32", 1.0)))}).result()


PASSES = ["fuse_attention", "fuse_norms", "fuse_activations", "join_products"]


def test_fused_as_unfused():
    """lavapipe, simulating a GPU, for which the pass runs."""
    limits = {"device_type": "discrete"}
    rng = np.random.default_rng(2)
    with (
        open_context(limits=limits) as one,
        open_context(limits=limits, skip_passes=PASSES) as other,
    ):
        for length in (1, 7, 40):
            feeds = {"x": drawn(rng, 2, length, 16), "mask": np.zeros((2, 1, 1, length), "f")}
            feeds["mask"][1, ..., length // 2 + 1 :] = -1e9
            graphs = encoder(one, length), encoder(other, length)
            kernels = [[line.kernel for line in g.report().lines] for g in graphs]
            # The residual is added where the norm loads it.
            attention = "attention_tiled" if length >= 32 else "attention"
            assert [k for k in kernels[0] if not k.startswith("mat")] == [attention, "norm"]
            assert len(kernels[0]) == 3 and len(kernels[1]) > 10
            results = [
                c.compute(g, feeds)["y"] for c, g in zip((one, other), graphs, strict=True)
            ]
            assert_allclose(*results, rtol=2e-5, atol=2e-5)


class Building:
    """A builder with an `Emitter`'s methods."""

    def __init__(self, context):
        self.builder = MLGraphBuilder(context)
        self.inputs = {}

    def __getattr__(self, name):
        return getattr(self.builder, name)

    def constant(self, value, data_type=None):
        return self.builder.constant(np.array(value, data_type))

    def make_input(self, name, shape, data_type):
        self.inputs[name] = (shape, data_type)
        return self.builder.input(name, {"data_type": data_type, "shape": shape})


@pytest.mark.parametrize("form", [
    Form(scale="div", mask="causal where, padding", steps=(4, 4)),
    Form(scale="query first", mask="where", shape="rows, masks by heads"),
    Form(scale="mul", mask="padding", heads="expand first", data_type="float16",
         wide_softmax=True),
], ids=str)
def test_forms_of_exporters(form):
    """lavapipe, simulating a GPU, and unchanged without the pass."""
    require_vulkan()
    results = []
    for limits, skip in (({"device_type": "discrete"}, ()), ({}, ("fuse_attention",))):
        with open_context(limits=limits, skip_passes=skip) as context:
            emit = Building(context)
            graph = emit.build({"y": describe(emit, form, emit.make_input)}).result()
            rng = np.random.default_rng(3)
            feeds = {
                name: rng.integers(0, 2, shape).astype(data_type) if data_type == "uint8"
                else drawn(rng, *shape, data_type=data_type)
                for name, (shape, data_type) in emit.inputs.items()
            }
            masks_that_show(form, feeds)
            results.append(context.compute(graph, feeds)["y"].astype(np.float64))
            names = [o for step in graph.report().steps for o in step.operators]
            assert ("attention" in names, "softmax" in names) == (not skip, bool(skip))
    tolerance = 1e-5 if form.data_type == "float32" else 4e-3
    assert_allclose(*results, rtol=tolerance, atol=tolerance)

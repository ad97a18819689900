"""Plans of the attention kernel, made for stored profiles: no device."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from bench.isa.catalogue import catalogue
from tests.support.graphs import graph_input, graph_of
from tests.support.profiles import NAMES, stored_profile
from tests.support.running import node_of, plan
from webnn_vk.compiler.ir import Emitter
from webnn_vk.compiler.kernels import DeviceWork, lower_graph
from webnn_vk.compiler.kernels.attention import shared_bytes, tiled_bytes
from webnn_vk.compiler.passes import DEVICE_PASSES, Compilation, remove_dead_code, run_passes
from webnn_vk.compiler.types.data_types import FLOAT_TYPES, MLOperandDescriptor

GPU = stored_profile("nvidia_ampere")


def planned(profile, query, keys, width, data_type="float32", **more):
    def array(shape):
        return np.zeros(shape, data_type)

    *batch, _, depth = query
    node, _ = node_of(
        "attention", array(query), array((*batch, keys, depth)), array((*batch, keys, width)),
        **more,
    )
    return plan(node, profile)[0]


@pytest.mark.parametrize("profile", NAMES)
def test_plans_are_in_the_catalogue_and_within_limits(profile):
    device = stored_profile(profile)
    known = set(catalogue(device.features, "attention"))
    shapes = ((2, 4, 33, 64), 70, 64), ((1, 8), 9, 7), ((3, 300, 128), 300, 512)
    for data_type, (query, keys, width), causal in itertools.product(
        FLOAT_TYPES, shapes, (False, True)
    ):
        seen, length = np.zeros(keys, np.uint8), np.zeros(1, np.uint32)
        for more in (
            {}, {"mask": np.zeros(keys, data_type), "seen": seen},
            {"length": length},
            *([{"seen": seen, "length": length, "softcap": 50.0}] if width % 4 == 0 else []),
        ):
            dispatch = planned(device, query, keys, width, data_type, causal=causal, **more)
            assert dispatch.spec in known
            c = dispatch.constants
            assert c["LX"] * c["LY"] <= device.max_workgroup_invocations
            wide = -(-width // (4 * c["LX"]))
            if dispatch.kernel == "attention_tiled":
                shared = tiled_bytes(c["LX"], c["LY"] * c["TM"], c["TE"], c["DC"], c["VC"])
                # An invocation loads the same columns of several rows of values.
                assert c["LX"] * c["LY"] % (c["LX"] * c["TE"]) == 0
                wide = 1 << (wide - 1).bit_length()
            else:
                shared = shared_bytes(c["LX"], c["LY"] * c["TM"])
            assert shared <= device.max_shared_memory
            assert c["TE"] == wide


def test_choices():
    def tile(profile, rows, batch, depth=64):
        dispatch = planned(profile, (batch, rows, depth), 512, depth)
        c = dispatch.constants
        return dispatch.kernel, c["LX"], c["LY"], c["TM"]

    # Enough to fill the device: tiles in shared memory, with fewer queries if there are few.
    assert tile(GPU, 512, 12) == ("attention_tiled", 16, 16, 4)
    assert tile(GPU, 512, 12, 128) == ("attention_tiled", 16, 16, 4)
    assert tile(GPU, 64, 32) == ("attention_tiled", 16, 8, 4)
    assert tile(GPU, 512, 12, 63) == ("attention", 16, 8, 4)  # not in vectors of 4
    # Of 32 queries also where these workgroups don't fill it. Of fewer, smaller workgroups.
    assert tile(GPU, 32, 4) == ("attention_tiled", 16, 8, 4)
    assert tile(GPU, 31, 4) == ("attention", 16, 4, 4)
    assert tile(GPU, 16, 12) == ("attention", 16, 8, 4)
    # The next token, and few of them: subgroups share the keys, as many as there are for.
    assert tile(GPU, 1, 12) == ("attention", 32, 1, 1)
    for rows, tall, keys, parts in (
        (1, 1, 2048, 16), (4, 4, 2048, 8), (1, 1, 257, 4), (1, 1, 128, 1),
    ):
        constants = planned(GPU, (12, rows, 64), keys, 64, "float16").constants
        assert (constants["LX"], constants["TM"], constants.get("LZ", 1)) == (32, tall, parts)
    # Processors: one SIMD group, and no queries that aren't there.
    software = stored_profile("llvmpipe")
    for rows, tall in ((1, 1), (2, 2), (3, 4), (4, 4), (5, 8), (512, 8)):
        assert tile(software, rows, 12) == ("attention", 8, 1, tall)
    # More sums would not stay in registers.
    for rows, tall in ((1, 1), (2, 2), (512, 2)):
        assert tile(software, rows, 12, 256) == ("attention", 8, 1, tall)


#: The largest heads for which tiles fit the registers and the shared memory. None fit on Mali.
TILED_HEADS = {
    "nvidia_ampere": 128, "amd_navi31": 128, "intel_dg2": 64, "apple_m1": 64, "arm_mali_g610": 0,
    "qualcomm_adreno750": 64, "adreno_minimum": 64, "llvmpipe": 0,
}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_prompts_over_a_cache_take_tiles_as_without_one(name, data_type):
    """512 tokens, 4 heads for each of keys, a window or a bound of scores. A few tokens do not."""
    device = stored_profile(name)
    cached = {"length": MLOperandDescriptor("uint32", (1,))}
    for head, rows in itertools.product((64, 128, 256), (512, 4)):
        query, key = (
            MLOperandDescriptor(data_type, (8, *shape))
            for shape in ((4, rows, head), (1, 4000, head))
        )
        seen = MLOperandDescriptor("uint8", (rows, 4000))
        chosen = [
            plan(node_of("attention", query, key, key, causal=True, **more)[0], device)[0]
            for more in ({}, cached, {**cached, "seen": seen}, {**cached, "softcap": 50.0})
        ]
        tiled = rows == 512 and head <= TILED_HEADS[name]
        assert {d.kernel for d in chosen} == {"attention_tiled" if tiled else "attention"}
        plain, *others, capped = [dict(d.constants) for d in chosen]
        assert all(constants == plain for constants in others)
        assert capped == ({**plain, "CAPPED": 1} if tiled else plain)


@pytest.mark.full
@pytest.mark.sample(0.2)
@pytest.mark.parametrize("name", [n for n in NAMES if stored_profile(n).device_type != "cpu"])
@pytest.mark.parametrize("data_type", ["float32", "float16"])
def test_workgroups_divide_many_keys(name, data_type):
    """A second dispatch costs what it takes one core to read 640 kB of keys and values. Beyond
    that, two workgroups for each core, if there are 128 keys for each."""
    device = stored_profile(name).replace(multiprocessors=132)
    size = np.dtype(data_type).itemsize
    for heads, keys in (*itertools.product((1, 8, 64, 264), (512, 2048, 4096, 8192)), (8, 32768)):
        node, _ = node_of(
            "attention", np.zeros((heads, 4, 64), data_type),
            *[np.zeros((heads, keys, 64), data_type)] * 2, length=np.zeros(1, np.uint32),
        )
        first, *join = plan(node, device)
        pieces = first.params.get("pieces", 1)
        assert [d.kernel for d in join] == ["attention_join"] * (pieces > 1)
        assert (pieces > 1) == (heads < 264 and keys * 128 * size > 640_000)
        if pieces > 1:
            # With few registers, several workgroups read the keys, each for some queries.
            assert first.groups[0] == heads * pieces * 4 // first.constants["TM"]
            assert heads * pieces >= min(2 * 132, heads * (keys // 128))
            assert pieces == 4 or heads * pieces < 8 * 132
            assert join[0].params["pieces"] == pieces
        # Vectors that each lane has on their way, 4 times, where there are registers for them.
        ahead = {"amd_navi31": 4, "nvidia_ampere": 4}.get(name)
        assert first.constants.get("AHEAD") == ahead


def test_bytes_on_their_way():
    """15.8 kB of keys or more for each core of an H200, whose driver has registers for 8 vectors:
    of 4,000 keys of 8 heads half of all there are."""
    device = GPU.replace(driver_name="NVIDIA", multiprocessors=132)
    for heads, keys in ((8, 4000), (8, 32768), (32, 4096)):
        node, _ = node_of(
            "attention", np.zeros((heads, 4, 64), "f2"), *[np.zeros((heads, keys, 64), "f2")] * 2
        )
        first, _ = plan(node, device)
        assert first.groups[0] * 32 * 4 * first.constants["AHEAD"] * 8 >= 132 * 15_800


def test_processors_read_texels_and_exchange_by_subgroups():
    software = stored_profile("llvmpipe")

    length = {"length": np.array([512], np.uint32)}

    def uses(profile, data_type="float32", depth=64, more=length):
        spec = planned(profile, (4, 1, depth), 512, depth, data_type, **more).spec
        loads = {b.load for b in spec.buffers if b.name in ("query", "key", "value")}
        needed = {"subgroup_arithmetic", "subgroup_shuffle"}
        assert dict(spec.options)["subgroup_sums"] == (needed <= spec.features)
        return loads, needed <= spec.features

    assert uses(software) == ({"texel"}, True)
    plain = {"storage"}, False
    for feature in ("subgroup_arithmetic", "subgroup_shuffle", "texel_buffers"):
        assert uses(software.masked([feature])) == plain
    sizes = {"subgroup_size": 4, "min_subgroup_size": 4, "max_subgroup_size": 4}
    assert uses(software.replace(**sizes)) == plain
    assert uses(software.replace(max_texel_buffer_elements=1024)) == plain
    assert uses(software, "float16") == uses(software, depth=63) == plain
    # Only generation needs such modules on processors.
    assert uses(software, more={}) == uses(GPU) == plain


def heads(emit, x, order):
    return emit.transpose(emit.reshape(x, (2, 16, 4, 8)), permutation=order)


def model():
    emit = Emitter()
    q, k, v = (graph_input(name, (2, 16, 32)) for name in "qkv")
    scores = emit.matmul(heads(emit, q, (0, 2, 1, 3)), heads(emit, k, (0, 2, 3, 1)))
    y = emit.matmul(emit.softmax(scores, 3), heads(emit, v, (0, 2, 1, 3)))
    y = emit.reshape(emit.transpose(y, permutation=(0, 2, 1, 3)), (2, 16, 32))
    return graph_of(emit, {"y": y}, q, k, v)


def titles(profile, **more):
    compilation = Compilation(profile, **more)
    placed = run_passes(DEVICE_PASSES, model(), compilation, clean=remove_dead_code)
    works = lower_graph(placed, compilation).works
    assert all(isinstance(w, DeviceWork) or not hasattr(w, "node") for w in works)
    return [w.titles[0] for w in works if isinstance(w, DeviceWork)]


def test_the_ways_to_and_from_the_heads_are_no_copies():
    assert titles(GPU) == ["attention"]


def test_what_the_device_can_not_do_is_taken_apart_again_and_stays_there():
    without = titles(GPU, available=lambda spec: spec.template != "attention.comp.j2")
    assert without == titles(GPU, skip=frozenset({"fuse_attention"}))
    assert without.count("matmul") == 2 and "softmax" in without
    # Rows of keys longer than the driver's limit on loop iterations.
    assert "attention" not in titles(GPU.replace(max_loop_iterations=15_010))

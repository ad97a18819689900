"""Graphs saved by one context and loaded by another, and everything that may be wrong with them."""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

import webnn_vk.compiler.program.saved_graphs
from bench.models import mobilenet_v2
from tests.support import discrete, models
from tests.support.contexts import open_context, returns_to, settled_bytes
from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT
from webnn_vk import InvalidStateError, MLGraphBuilder, NotSupportedError, OperationError
from webnn_vk.api.ml_graph import executable_of
from webnn_vk.support.mmap_array import owner_of

DEVICES = ["cpu", pytest.param("vulkan", marks=pytest.mark.device)]


@pytest.fixture(params=DEVICES)
def device(request):
    if request.param == "vulkan":
        require_vulkan()
    return request.param


@pytest.fixture
def context(device, tmp_path):
    with open_context(device, cache=tmp_path) as context:
        yield context


def weights(seed, *shape):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


pytestmark = pytest.mark.filterwarnings("ignore:build. no output depends on the inputs")


def build(context, seed=0):
    """Weights that are packed, weights that aren't, and an input that nothing reads."""
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [32, 64]})
    builder.input("idle", {"data_type": "float32", "shape": [1]})
    y = builder.matmul(x, builder.constant(weights(seed, 64, 96)), label="weights")
    y = builder.softmax(y + builder.constant(weights(seed + 1, 1, 96)), 1)
    return builder.build({"y": builder.matmul(builder.transpose(y), y)}).result()


FEEDS = {"x": weights(9, 32, 64)}


def same(context, graph, wanted):
    got = context.compute(graph, FEEDS)["y"]
    assert got.any()
    np.testing.assert_array_equal(got.view(np.uint32), wanted["y"].view(np.uint32))


def test_a_loaded_graph_is_the_one_that_was_saved(context):
    graph = build(context)
    wanted = context.compute(graph, FEEDS)
    assert context.save_graph("model", graph).result() is None
    graph.destroy()
    loaded = context.load_graph("model").result()
    assert (loaded.inputs, loaded.outputs) == (graph.inputs, graph.outputs)
    same(context, loaded, wanted)
    for step, before in zip(loaded.report().steps, graph.report().steps, strict=True):
        assert (step.operators, step.kernel, step.variant) == (
            before.operators, before.kernel, before.variant)
    assert "load" in loaded.report().build_seconds
    assert loaded.report().setup == ()
    assert loaded.report().weight_bytes == graph.report().weight_bytes
    with pytest.raises(TypeError, match=r"no output depends on \['idle'\]"):
        context.compute(loaded, {**FEEDS, "idle": np.zeros(1, np.float32)})
    # Saved once more, from the loaded graph.
    context.save_graph("copy", loaded).result()
    same(context, context.load_graph("copy").result(), wanted)
    assert context.list_graphs().result() == ["copy", "model"]


def test_keys(context):
    first, second = build(context, 0), build(context, 5)
    keys = ["", "../../etc/passwd", "a/b", "\0", "ключ \U0001f511", "\ud800", "x" * 65536]
    for key in keys:
        context.save_graph(key, first).result()
    assert context.list_graphs().result() == sorted(keys)
    context.save_graph("a/b", second).result()  # replaced
    same(context, context.load_graph("a/b").result(), context.compute(second, FEEDS))
    same(context, context.load_graph("").result(), context.compute(first, FEEDS))
    folder = webnn_vk.compiler.program.saved_graphs.SavedGraphs
    root = context._settings.cache_folder / "graphs"
    assert len(list(root.iterdir())) == 2 * len(keys)  # the replaced file is gone
    assert folder(root, None, "").keys() == sorted(keys)
    for key in keys:
        assert context.delete_graph(key).result() is None
    assert context.list_graphs().result() == [] and list(root.iterdir()) == []
    for call in (context.load_graph, context.delete_graph):
        with pytest.raises(NotSupportedError, match="'a/b': no graph is saved under this key in"):
            call("a/b").result()
        with pytest.raises(TypeError, match="the key is a str, not bytes"):
            call(b"a").result()
        with pytest.raises(TypeError, match="at most 65536 characters"):
            call("x" * 65537).result()


def test_what_is_no_graph_of_this_context(context, device):
    graph = build(context)
    with open_context(device) as other:
        with pytest.raises(TypeError, match="save_graph: the graph belongs to another context"):
            other.save_graph("a", graph).result()
    with pytest.raises(TypeError, match="save_graph: an MLGraph is expected, not a?n? ?str"):
        context.save_graph("a", "graph").result()
    graph.destroy()
    with pytest.raises(InvalidStateError, match="the graph was destroyed"):
        context.save_graph("a", graph).result()
    assert context.list_graphs().result() == []
    context.destroy()
    for call in (context.list_graphs, lambda: context.load_graph("a")):
        with pytest.raises(InvalidStateError, match="lost"):
            call().result()


def test_without_a_folder(device):
    with open_context(device, cache="off") as context:
        graph = build(context)
        for call in (
            lambda: context.save_graph("a", graph), lambda: context.load_graph("a"),
            context.list_graphs, lambda: context.delete_graph("a"),
        ):
            with pytest.raises(NotSupportedError, match="no cache folder"):
                call().result()


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="folders of others: POSIX")
def test_a_folder_that_others_write_to(context):
    graph = build(context)
    context.save_graph("a", graph).result()
    (context._settings.cache_folder / "graphs").chmod(0o777)
    for call in (lambda: context.save_graph("a", graph), lambda: context.load_graph("a")):
        with pytest.raises(NotSupportedError, match="others may write to it"):
            call().result()


CHILD = """
import sys
import numpy as np
import webnn_vk.api.build
import webnn_vk.compiler.ir.graph
import webnn_vk.compiler.kernels
import webnn_vk.api.builder
from webnn_vk.codegen.compiler import Compiler
from webnn_vk.tools.devices import open_context

def refuse(*args, **named):
    raise AssertionError("this process compiles nothing")

webnn_vk.api.build.compile_program = webnn_vk.compiler.kernels.lower.plan = refuse
webnn_vk.compiler.ir.graph.Graph.__init__ = webnn_vk.compiler.ir.graph.Node.__init__ = refuse
webnn_vk.api.builder.MLGraphBuilder.__init__ = Compiler.compile = refuse
device, folder = sys.argv[1:]
with open_context(device) as context:
    for key in context.list_graphs().result():
        graph = context.load_graph(key).result()
        results = context.compute(graph, dict(np.load(f"{folder}/{key}-feeds.npz")))
        np.savez(f"{folder}/{key}-results.npz", **results)
"""

SMALL = (1, 3, 64, 64)


def test_another_process_gets_the_same_bits(context, device, tmp_path):
    """Models with packed weights, CPU steps and constant tensors, in a process without a shader
    compiler, a shader archive and a shader cache."""
    if device == "vulkan":
        discrete.require_same_device()
    wanted = {}

    def keep(key, graph, **shapes):
        feeds = {name: weights(4, *shape) for name, shape in shapes.items()}
        wanted[key] = context.compute(graph, feeds)
        np.savez(tmp_path / f"{key}-feeds.npz", **feeds)
        context.save_graph(key, graph).result()

    keep("mobilenet", mobilenet_v2.build(context, shape=SMALL).result(), image=SMALL)
    builder = MLGraphBuilder(context)
    keep("lstm", builder.build(models.lstm_operands(builder)).result(), x=(5, 2, 16))
    builder = MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "float32", "shape": [6, 10]})
    tensor = context.create_constant_tensor(
        {"data_type": "float32", "shape": [10, 10]}, weights(1, 10, 10)).result()
    w = builder.constant(tensor)
    y = builder.triangular(builder.concat([builder.matmul(x, w), w], 0), upper=False)
    keep("tensor", builder.build({"y": builder.tanh(y)}).result(), x=(6, 10))
    shutil.rmtree(tmp_path / "spirv", ignore_errors=True)
    (tmp_path / "empty.pack").write_bytes(b"")
    environment = {
        **os.environ, "WEBNN_VK_CACHE": str(tmp_path), "WEBNN_VK_GLSLANG": "none",
        "WEBNN_VK_PACK": str(tmp_path / "empty.pack"), "PYTHONWARNINGS": "ignore",
    }
    done = subprocess.run(
        [sys.executable, "-c", CHILD, device, str(tmp_path)], cwd=ROOT, env=environment,
        capture_output=True, text=True, timeout=300,
    )
    assert done.returncode == 0, done.stderr
    for key, results in wanted.items():
        got = dict(np.load(tmp_path / f"{key}-results.npz"))
        assert got.keys() == results.keys()
        for name, array in results.items():
            assert array.any()
            np.testing.assert_array_equal(got[name].view(np.uint8), array.view(np.uint8))


@pytest.mark.device
def test_cpu_steps_that_read_a_constant_tensor(tmp_path):
    """The tensor's bytes are copied to the host at set-up: the saved graph contains them."""
    require_vulkan()
    with open_context("vulkan", cache=tmp_path, force_cpu=("concat",)) as context:
        tensor = context.create_constant_tensor(
            {"data_type": "float32", "shape": [4, 4]}, weights(1, 4, 4)).result()
        builder = MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [4, 4]})
        y = builder.concat([builder.tanh(x), builder.constant(tensor)], 0)
        graph = builder.build({"y": builder.exp(y)}).result()
        assert graph.report().count("cpu") == 1
        feeds = {"x": weights(2, 4, 4)}
        wanted = context.compute(graph, feeds)["y"]
        context.save_graph("a", graph).result()
        graph.destroy()
        tensor.destroy()
        loaded = context.load_graph("a").result()
        assert loaded.report().count("cpu") == 1
        np.testing.assert_array_equal(context.compute(loaded, feeds)["y"], wanted)


def entry_of(context, key="a"):
    root = context._settings.cache_folder / "graphs"
    for path in root.glob("*.json"):
        about = json.loads(path.read_text())
        if about["key"] == key:
            return path, about, root / about["folder"]
    raise AssertionError(f"no entry for {key!r}")


def test_a_graph_of_another_device_or_version_says_so(context, device, tmp_path, monkeypatch):
    graph = build(context)
    context.save_graph("a", graph).result()

    def refused(by, message):
        with pytest.raises(NotSupportedError, match=message):
            by.load_graph("a").result()

    entry, about, _ = entry_of(context)

    def rewritten(**changes):
        entry.write_text(json.dumps({**about, **changes}))

    rewritten(library="0.0.1")
    refused(context, "saved by webnn_vk 0.0.1, this is .*; build and save it again")
    rewritten()
    if device == "vulkan":
        with open_context("cpu", cache=tmp_path) as other:
            name = re.escape(context.device_info.name)
            refused(other, f"saved for {name}, this is the CPU device")
        with open_context("vulkan", cache=tmp_path, mask=("float16",)) as other:
            refused(other, "other device features in use: .*float16")
        saved = about["device"]
        rewritten(device={**saved, "driver_version": "1.2.3"})
        refused(context, "with the driver .* 1.2.3, this is")
        rewritten(device={**saved, "max_shared_memory": 1})
        refused(context, "with another max_shared_memory of the device")
        rewritten(device={**saved, "name": "Another GPU"})
        refused(context, "saved for Another GPU, this is")
    rewritten()
    context.load_graph("a").result()


def test_damaged_files_are_refused(context):
    graph = build(context)
    wanted = context.compute(graph, FEEDS)
    random = np.random.default_rng(0)
    refusals = 0
    for _ in range(8):
        context.save_graph("a", graph).result()
        entry, _, folder = entry_of(context)
        for name in ("program.json", "program.bin"):
            path = folder / name
            data = bytearray(path.read_bytes())
            data[random.integers(len(data))] ^= 1 << random.integers(8)
            original = path.read_bytes()
            path.write_bytes(data)
            with pytest.raises(NotSupportedError, match=f"{name} is damaged"):
                context.load_graph("a").result()
            path.write_bytes(original[: random.integers(len(original))])
            with pytest.raises(NotSupportedError, match=f"{name} is damaged"):
                context.load_graph("a").result()
            path.write_bytes(original)
        # With any byte changed, an entry is invalid, or has invalid references, or is unchanged.
        original = entry.read_bytes()
        for _ in range(20):
            data = bytearray(original)
            data[random.integers(len(data))] ^= 1 << random.integers(8)
            entry.write_bytes(data)
            try:
                same(context, context.load_graph("a").result(), wanted)
            except NotSupportedError:
                refusals += 1
            context.list_graphs().result()
        entry.write_bytes(original)
        same(context, context.load_graph("a").result(), wanted)
    assert refusals > 80
    for junk in (b"", b"[]", b"{}", b"[" * 100_000, b"\xff", b'{"folder": "../.."}'):
        entry.write_bytes(junk)
        assert context.list_graphs().result() == []
        with pytest.raises(NotSupportedError, match="no graph is saved"):
            context.load_graph("a").result()
    context.save_graph("a", graph).result()
    shutil.rmtree(entry_of(context)[2])
    with pytest.raises(NotSupportedError, match="its files are gone"):
        context.load_graph("a").result()


def test_a_full_disk_leaves_what_was_there(context, monkeypatch):
    first, second = build(context, 0), build(context, 5)
    context.save_graph("a", first).result()
    root = context._settings.cache_folder / "graphs"
    before = sorted(path.name for path in root.iterdir())

    def full(*args, **named):
        raise OSError(28, "No space left on device")

    for name in ("_digest", "write_atomically"):
        with monkeypatch.context() as patch:
            patch.setattr(webnn_vk.compiler.program.saved_graphs, name, full)
            with pytest.raises(OperationError, match="save_graph: .*No space left on device"):
                context.save_graph("a", second).result()
        assert sorted(path.name for path in root.iterdir()) == before
    same(context, context.load_graph("a").result(), context.compute(first, FEEDS))


def test_what_saving_left_undone_is_swept_away(context):
    root = context._settings.cache_folder / "graphs"
    graph = build(context)
    context.save_graph("a", graph).result()
    old, new, foreign = root / ("0" * 32), root / ("1" * 32), root / "mine"
    for folder in (old, new, foreign):
        folder.mkdir()
        (folder / "program.bin").write_bytes(b"x")
    past = time.time() - 7200
    for folder in (old, foreign):
        os.utime(folder, (past, past))
    context.save_graph("a", graph).result()
    assert not old.exists() and new.exists() and foreign.exists()


def test_savers_and_loaders_at_the_same_time(context):
    graphs = [build(context, seed) for seed in (0, 5)]
    wanted = [context.compute(graph, FEEDS)["y"].tobytes() for graph in graphs]
    context.save_graph("a", graphs[0]).result()
    errors: list[BaseException] = []

    def attempt(call):
        try:
            for turn in range(15):
                call(turn)
        except BaseException as error:
            errors.append(error)

    def load(turn):
        loaded = context.load_graph("a").result(60)
        assert context.compute(loaded, FEEDS)["y"].tobytes() in wanted

    calls = [lambda turn: context.save_graph("a", graphs[turn % 2]).result(60), load, load]
    threads = [threading.Thread(target=attempt, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []


def test_loading_leaves_no_memory_behind(context):
    graph = build(context)
    context.save_graph("a", graph).result()
    before = settled_bytes(context)
    for _ in range(3):
        loaded = context.load_graph("a").result()
        size = settled_bytes(context) - before
        loaded.destroy()
        del loaded
        assert returns_to(context, before)
    if context.device_info.is_vulkan:
        assert size >= graph.report().weight_bytes


def test_the_weights_are_no_second_time_on_the_host(context):
    context.save_graph("a", build(context)).result()
    loaded = context.load_graph("a").result()
    held = executable_of(loaded).contents()
    arrays = [data for data in held.values() if isinstance(data, np.ndarray)]
    # On the CPU device they are the file's pages.
    assert bool(arrays) != context.device_info.is_vulkan
    assert all(isinstance(owner_of(array), mmap.mmap) for array in arrays)

"""The commands on models and caches, on the CPU device. (Their errors: `test_cli`.)"""

from __future__ import annotations

import json
import re
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from tests.support.command_line import Command, affine, write_model
from tests.support.discriminating import assert_allclose
from tests.support.gpu_shaders import needs_compiler


@pytest.fixture
def command(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    return Command(capsys)


@pytest.fixture
def model(tmp_path):
    return affine(tmp_path / "model.onnx")


def test_run_on_an_array(command, model, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    np.save(tmp_path / "x.npy", x)
    for given in (f"x={tmp_path / 'x.npy'}", tmp_path / "x.npy"):
        done = command.json("run", model, "--input", given, "--output", tmp_path / "y.npz")
        with np.load(tmp_path / "y.npz") as written:
            np.testing.assert_array_equal(written["y"], 2 * x + 1)
        assert done["written"] == str(tmp_path / "y.npz")
        (y,) = done["outputs"]
        assert y == {"name": "y", "type": "float32", "shape": [1, 3, 2, 2], "min": 1.0,
                     "max": 23.0, "mean": 12.0, "not_finite": 0}
    status, out, _ = command("run", model, "--input", given)
    assert status == 0 and re.search(r"output +y +float32 +\[1, 3, 2, 2\] +1 +23 +12 +0", out)


def test_run_on_random_numbers_is_the_same_for_a_seed(command, model, tmp_path):
    def outputs(*more):
        path = tmp_path / "y.npy"
        command.json("run", model, "--shape", "x=2,3,4,5", "--output", path, *more)
        return np.load(path)

    first = outputs()
    assert first.shape == (2, 3, 4, 5) and 1 <= first.min() < first.max() < 3
    np.testing.assert_array_equal(outputs("--input", "random"), first)
    assert (outputs("--seed", "1") != first).any()


def test_shapes_that_nobody_gives(command, model):
    (x,) = command.json("run", model)["inputs"]
    assert x["shape"] == [1, 3, 224, 224]


@pytest.mark.parametrize(("declared", "taken", "told"), [
    (["time", "batch", 16], [8, 1, 16], True),
    (["batch", "time", 16], [1, 8, 16], True),
    ([None, None], [1, 8], True),
    (["batch", 16], [1, 16], False),
    (["N", 4, "past_sequence_length", 64], [1, 4, 8, 64], True),
    (["batch", 12, "past", "total"], [1, 12, 8, 8], True),
    ([None, 16, None, 64], [1, 16, 8, 64], True),
    (["N", "frames", "tokens"], [1, 8, 8], True),
    (["N", 3, 48, "width"], [1, 3, 48, 224], False),
    (["N", None, None, 16], [1, 224, 224, 16], False),
    ([None] * 4, [1, 224, 224, 224], False),
    ([3, "h", "w"], [3, 224, 224], False),
    (["d"] * 5, [1, 1, 1, 1, 1], False),
])
def test_unknown_dimensions_are_small_or_of_images(command, tmp_path, declared, taken, told):
    """Assumptions about inputs that aren't images are printed on stderr, as the option that changes
    them."""
    path = write_model(tmp_path / "m.onnx", [helper.make_node("Neg", ["x"], ["y"])],
                       {"x": declared}, {"y": declared}, {})
    status, out, err = command("run", path, "--json")
    assert status == 0 and json.loads(out)["inputs"][0]["shape"] == taken
    option = f"x={','.join(map(str, taken))}"
    assert bool(err) == told
    if told:
        (line,) = err.splitlines()
        assert line.startswith("webnn-vk: unknown dimensions are taken: x [")
        assert line.endswith(f" as --shape {option}")
    assert command("run", path, "--json", "--shape", option)[2] == ""
    exported = tmp_path / "m.webnn"
    assert command("export", path, exported)[0] == 0


def test_a_guess_that_does_not_fit_is_named(command, tmp_path):
    path = write_model(tmp_path / "m.onnx", [helper.make_node("Add", ["a", "b"], ["y"])],
                       {"a": ["N", "time"], "b": [3, 5]}, {"y": [3, 5]}, {})
    status, out, err = command("run", path)
    assert (status, out, len(err.splitlines())) == (1, "", 1)
    assert err.endswith("unknown dimensions are taken: a [N, time] as --shape a=1,8\n")
    assert command("run", path, "--shape", "a=3,5")[0] == 0


@pytest.mark.parametrize(("shape", "layout"), [
    ([1, 3, "h", "w"], "nchw"), ([1, "h", "w", 3], "nhwc"), ([3, "h", "w"], "chw"),
])
def test_run_on_an_image(command, tmp_path, shape, layout):
    Image = pytest.importorskip("PIL.Image")
    Image.new("RGB", (8, 8), (255, 0, 51)).save(tmp_path / "x.png")
    fixed = [{"h": 2, "w": 4}.get(length, length) for length in shape]
    path = affine(tmp_path / "model.onnx", fixed)
    command.json("run", path, "--input", tmp_path / "x.png", "--mean", "0,0,0.5",
                 "--std", "0.5", "--output", tmp_path / "y.npy")
    written = np.load(tmp_path / "y.npy")
    channels = np.moveaxis(written.reshape(fixed), fixed.index(3), -1)
    # (1, 0, 0.2) minus the mean, divided by the standard deviation; twice that and one.
    expected = 2 * np.array([2, 0, -0.6], np.float32) + 1
    assert_allclose(channels, np.broadcast_to(expected, channels.shape), rtol=1e-6)


def test_an_image_does_not_fit_everywhere(command, tmp_path):
    Image = pytest.importorskip("PIL.Image")
    Image.new("RGB", (8, 8)).save(tmp_path / "x.png")
    path = affine(tmp_path / "model.onnx", [1, 7])
    status, _, err = command("run", path, "--input", tmp_path / "x.png")
    assert status == 1 and re.search(r"\[1, 7\]: images go into", err)


def test_values_that_decide_shapes_are_asked_for(command, tmp_path):
    path = write_model(
        tmp_path / "model.onnx", [helper.make_node("Reshape", ["x", "s"], ["y"])],
        {"x": [6], "s": [2]}, {"y": ["a", "b"]}, {}, {"s": TensorProto.INT64},
    )
    status, _, err = command("run", path)
    assert status == 1 and "input 's' determines shapes or branches: give it as --input s=" in err
    done = command.json("run", path, "--input", "s=2,3", "--input", "x=1,2,3,4,5,6")
    assert done["outputs"][0]["shape"] == [2, 3] and done["outputs"][0]["mean"] == 3.5
    bench = command.json("bench", path, "--input", "s=3,2", "--runs", "2", "--compare",
                         "onnxruntime")
    assert bench["largest_difference"] == 0


def test_bench_beside_onnxruntime(command, model):
    done = command.json("bench", model, "--shape", "x=1,3,8,8", "--runs", "5",
                        "--compare", "onnxruntime")
    ours, others = done["engines"]
    assert (ours["engine"], others["engine"]) == ("webnn_vk", "onnxruntime")
    for row in (ours, others):
        assert row["runs"] == 5
        assert 0 < row["fastest"] <= row["p10"] <= row["median"] <= row["p90"]
        assert row["per_second"] > 0
    assert ours["memory"] > 0 and done["largest_difference"] == 0
    status, out, _ = command("bench", model, "--shape", "x=1,3,8,8", "--seconds", "0.05")
    assert status == 0 and re.search(r"^webnn_vk +\d+ .*s +[\d.]+ ", out, re.MULTILINE)


def test_largest_difference():
    from webnn_vk.tools.bench import largest_difference

    a = {"y": np.array([0.0, 8.0, np.inf])}
    assert largest_difference(a, {"y": np.array([1.0, 8.0, np.inf])}) == 1 / 8
    assert largest_difference(a, {"z": np.zeros(3)}) is None


def test_check_names_what_runs_where(command, model):
    done = command.json("check", model)
    assert done["supported"] and done["steps"] == {"vulkan": 0, "cpu": 2}
    assert done["operators"] == [{"operator": "add", "vulkan": 0, "cpu": 1},
                                 {"operator": "mul", "vulkan": 0, "cpu": 1}]


def test_check_lists_what_is_not_supported(command, tmp_path):
    path = write_model(tmp_path / "model.onnx", [
        helper.make_node("NonZero", ["x"], ["n"], "nonzero"),
        helper.make_node("Cast", ["n"], ["y"], to=TensorProto.FLOAT),
    ], {"x": [4]}, {"y": [1, "n"]}, {})
    done = command.json("check", path, status=1)
    assert not done["supported"]
    (problem,) = done["problems"]
    assert problem["operator"] == "NonZero" and problem["reason"]
    status, out, err = command("check", path)
    assert (status, err) == (1, "") and "is not supported, for 1 reason" in out
    status, out, err = command("run", path)
    assert (status, out) == (1, "") and "NonZero" in err and len(err.splitlines()) == 1


def test_graph_draws_kernels_and_passes(command, model, tmp_path):
    pytest.importorskip("fast_sugiyama")
    picture, both, page = (tmp_path / name for name in ("g.svg", "both.svg", "g.html"))
    done = command.json("graph", model, "--svg", picture, "--html", page)
    assert done["written"] == [str(picture), str(page)] and done["passes"] == ["input", "place"]
    text = picture.read_text(encoding="utf-8")
    assert re.findall(r'class="item (.+?)"', text) == ["input", "node cpu", "node cpu", "output"]
    assert text.count("float32[1, 3, 224, 224]<") == 3
    status, out, _ = command("graph", model, "--svg", both, "--pass", "place", "--unfold")
    assert status == 0 and f"Written   {both}" in out and "changed something: place" in out
    text = both.read_text(encoding="utf-8")
    assert re.findall(r'class="title".*?>(.+?)<', text) == ["before place", "after place"]
    assert text.count('"item node"') == 2 == text.count('"item node cpu"')
    text = page.read_text(encoding="utf-8")
    (data,) = re.findall(r"^const data = (.*);$", text, re.MULTILINE)
    graphs = json.loads(data)["graphs"]
    assert [g["title"] for g in graphs] == [f"{title}: 2 operators" for title in
                                            ("as built", "after place", "kernels")]
    assert [g["before"] is None for g in graphs] == [True, False, True]


def test_a_command_names_all_packages_that_it_lacks(command, tmp_path, monkeypatch):
    """Before it does anything: one installation is enough."""
    file, model = tmp_path / "model.onnx", tmp_path / "model.webnn"
    file.touch()
    model.touch()
    for name in ("onnx", "onnxruntime", "fast_sugiyama", "safetensors"):
        monkeypatch.setitem(sys.modules, name, None)
    for words, lacks, extras in (
        (("graph", file, "--svg", tmp_path / "g.svg"), "onnx and fast-sugiyama", "onnx,pictures"),
        (("graph", model, "--html", tmp_path / "g.html"), "fast-sugiyama", "pictures"),
        (("bench", file, "--compare", "onnxruntime"), "onnx and onnxruntime", "onnx,cpu"),
        (("bench", model, "--compare", "onnxruntime"), "onnx and onnxruntime", "cpu"),
        (("export", file, tmp_path / "m.webnn"), "onnx and safetensors", "onnx,webnn"),
        (("export", model, tmp_path / "m.onnx"), "onnx", "onnx"),
        (("run", file), "onnx", "onnx"),
    ):
        status, out, err = command(*words)
        assert (status, out) == (1, "")
        plural = "s" * (" and " in lacks)
        assert err.endswith(f" the package{plural} {lacks}: pip install 'webnn_vk[{extras}]'\n")


def test_graph_without_a_layout(command, model, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "fast_sugiyama", None)
    status, out, err = command("graph", model, "--svg", tmp_path / "g.svg")
    assert (status, out) == (1, "")
    assert err.endswith("the package fast-sugiyama: pip install 'webnn_vk[pictures]'\n")
    # The page of a profile is written without it.
    status, _, _ = command("profile", model, "--runs", "1", "--html", tmp_path / "p.html")
    assert status == 0
    text = (tmp_path / "p.html").read_text(encoding="utf-8")
    assert '"graphs": []' in text and "pip install 'webnn_vk[pictures]'" in text


def test_graph_lists_kernels(command, model):
    done = command.json("graph", model)
    assert [line["operators"] for line in done["lines"]] == [["mul [t]"], ["add [y]"]]
    status, out, _ = command("graph", model)
    assert status == 0 and re.search(r"^0 +mul \[t\] +cpu +numpy", out, re.MULTILINE)


def test_export_and_back(command, model, tmp_path):
    x = np.arange(12, dtype=np.float32).reshape(1, 3, 2, 2)
    np.save(tmp_path / "x.npy", x)
    for target in ("copy.webnn", "copy.onnx", "cache:copy"):
        place = target if target.startswith("cache:") else tmp_path / target
        command.json("export", model, place, "--shape", "x=1,3,2,2")
        command.json("run", place, "--input", tmp_path / "x.npy", "--output", tmp_path / "y.npy")
        np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), 2 * x + 1)
    onnx.checker.check_model(tmp_path / "copy.onnx")


def test_cache_is_shown_verified_and_cleared(command, model, tmp_path):
    command.json("export", model, "cache:kept", "--shape", "x=1,3,2,2")
    assert list(command.json("cache", "stat")["graphs"]) == ["kept"]
    clean = {
        "folder": str(tmp_path / "cache"), "damaged_shaders": [], "damaged_graphs": {},
        "damaged_tuned": {},
    }
    assert command.json("cache", "verify") == clean
    (data,) = (tmp_path / "cache" / "graphs").glob("*/*.bin")
    data.write_bytes(data.read_bytes() + b"x")
    shader = tmp_path / "cache" / "spirv" / f"{'00' * 32}-01234567.spv"
    shader.parent.mkdir(mode=0o700)
    shader.write_bytes(b"no shader")
    schedule = tmp_path / "cache" / "tuned" / f"{'00' * 20}.json"
    schedule.parent.mkdir(mode=0o700)
    schedule.write_bytes(b"{}")
    passed = shader.with_suffix(".passed")
    passed.write_bytes(b"a self-test that passed")
    remembered = schedule.with_suffix(".probe")
    remembered.write_bytes(b"{}")
    assert command.json("cache", "stat")["tuned"] == {"entries": 1, "bytes": 2}
    damaged = command.json("cache", "verify", status=1)
    assert damaged["damaged_shaders"] == [shader.name]
    assert damaged["damaged_graphs"] == {"kept": f"{data.name} is damaged"}
    assert damaged["damaged_tuned"] == {schedule.name: "no tuned schedule"}
    removed = command.json("cache", "clear", "--only", "graphs")["removed"]
    assert removed == {"shaders": 0, "graphs": 1, "tuned": 0} and shader.exists()
    removed = command.json("cache", "clear", "--only", "tuned")["removed"]
    assert removed == {"shaders": 0, "graphs": 0, "tuned": 1}
    assert not schedule.exists() and not remembered.exists()
    assert shader.exists() and passed.exists()
    removed = command.json("cache", "clear")["removed"]
    assert removed == {"shaders": 1, "graphs": 0, "tuned": 0} and not passed.exists()
    assert command.json("cache", "verify") == clean


def test_info(command):
    done = command.json("info", "--device", "cpu")
    assert [device["type"] for device in done["devices"]] == ["numpy"]
    status, out, _ = command("info", "--device", "cpu")
    assert status == 0 and re.search(r"^Device +cpu: CPU", out) and "\nCache  " in out


def test_operators_as_json(command):
    add = command.json("operators")["add"]
    assert len(add["a"]) == 8 and "float32" in add["a"]


def test_profile(command, model, tmp_path):
    done = command.json("profile", model, "--shape", "x=1,3,4,4", "--runs", "3", "--html",
                        tmp_path / "page.html", "--trace", tmp_path / "trace.json")
    (kernel,) = done["kernels"]
    assert kernel["operators"] == ["mul [t]", "add [y]"] and kernel["runs"] == done["runs"] == 3
    assert 0 < kernel["seconds"] == done["host_seconds"] < done["seconds"]
    assert done["written"] == [str(tmp_path / name) for name in ("page.html", "trace.json")]
    assert (tmp_path / "page.html").read_text().startswith("<!doctype html>")
    status, out, _ = command("profile", model, "--shape", "x=1,3,4,4")
    assert status == 0 and re.search(r"^100\.0% .*mul \[t\] \+ add \[y\]", out, re.MULTILINE)


def test_shader_list_and_describe(command):
    names = {row["template"] for row in command.json("shader", "list")}
    assert {"matmul.comp.j2", "softmax.comp.j2", "probe.comp.j2"} <= names
    status, out, _ = command("shader", "describe", "scatter_clear")
    assert status == 0 and "--buffer slots:uint32:w:4" in out
    found = command.json("shader", "describe", "scatter_clear")
    assert found["buffers"]["slots"]["values"] == ["uint32:w:4"]
    assert found["command"][3:5] == ["compile", "scatter_clear"]


def test_shader_describe_takes_a_path(command, tmp_path, monkeypatch):
    """Like compile, with the same message for files that are not models."""
    (tmp_path / "own.comp.j2").write_text(
        '{# Of my own. #}\n{% include "lib/prelude.glsl.j2" %}\n'
        "void main() { store_y(0u, load_x(P.first)); }\n"
    )
    monkeypatch.chdir(tmp_path)
    for path in ("own.comp.j2", "./own.comp.j2", tmp_path / "own.comp.j2"):
        found = command.json("shader", "describe", path)
        assert found["comment"] == "Of my own." and found["params"] == ["first"]
        assert found["buffers"]["y"]["access"] == "w"
    status, out, err = command("shader", "describe", "./own.comp.j2")
    assert (status, err) == (0, "") and "--buffer y:TYPE:w" in out
    assert "own" not in {row["template"] for row in command.json("shader", "list")}
    for path in ("./nosuch.comp.j2", "own.comp"):
        told = {command("shader", name, path) for name in ("describe", "compile")}
        assert len(told) == 1 and told.pop()[:2] == (1, "")


def test_shader_compile_takes_a_template_of_ones_own(command, tmp_path):
    needs_compiler()
    (tmp_path / "double.comp.j2").write_text(
        '{% include "lib/prelude.glsl.j2" %}\nvoid main() {\n  uint i = invocation_index();\n'
        "  if (i < P.count) store_y(i, 2.0 * load_y(i));\n}\n"
    )
    arguments = ("shader", "compile", tmp_path / "double.comp.j2", "--buffer", "y:float32:rw",
                 "--param", "count", "-o", tmp_path / "double.spv")
    status, out, err = command(*arguments)
    assert status == 0 and "bindings 1" in out, err
    module = (tmp_path / "double.spv").read_bytes()
    assert module[:4] == b"\x03\x02\x23\x07"
    told = command.json(*arguments)
    assert told.pop("instructions") > 20
    assert told == {"file": str(tmp_path / "double.spv"), "bytes": len(module),
                    "bindings": [[0, 0]], "capabilities": ["Shader"]}

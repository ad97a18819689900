"""`webnn-vk` on a Vulkan device: a trained model through the commands, and its kernels shown."""

from __future__ import annotations

import json
import re
import time
import uuid

import numpy as np
import pytest
from onnx import helper

from tests.support.command_line import Command, affine, write_model
from tests.support.contexts import open_over
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.faults import FaultyDriver
from tests.support.trained import require
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.examples.text_reader import ORIENTATION

ON = ("--device", "vulkan")
SHAPE = ("--shape", "x=1,3,48,192")


@pytest.fixture
def command(capsys):
    require_vulkan()
    return Command(capsys)


@pytest.fixture
def model():
    require(ORIENTATION)
    return ORIENTATION.path()


@pytest.mark.full
def test_a_trained_model_from_check_to_profile(command, model):
    checked = command.json("check", model, *ON, *SHAPE)
    assert checked["supported"] and checked["steps"]["cpu"] == 0
    conv = {row["operator"]: row["vulkan"] for row in checked["operators"]}["conv2d"]
    assert conv == 53
    measured = command.json("bench", model, *ON, *SHAPE, "--runs", "2", "--compare", "onnxruntime")
    assert measured["largest_difference"] < 1e-5
    assert measured["engines"][0]["gflops"] > 0 and measured["flops"] > 1e7
    key = f"test {uuid.uuid4()}"
    saved = f"cache:{key}"
    command.json("export", model, saved, *ON, *SHAPE)
    try:
        profiled = command.json("profile", saved, "--device", "vulkan", "--runs", "2")
    finally:
        delete_graph(key)
    assert sum(kernel["flops"] for kernel in profiled["kernels"]) == measured["flops"]
    assert {kernel["runs"] for kernel in profiled["kernels"]} == {2}
    assert 0 < profiled["kernel_seconds"] <= profiled["seconds"]
    uploads = {t["kind"]: t["bytes"] for t in profiled["transfers"]}
    assert uploads["upload"] == 2 * 4 * 3 * 48 * 192


def test_pictures_of_a_trained_model(command, model, tmp_path):
    pytest.importorskip("fast_sugiyama")
    kernels, fuse = tmp_path / "kernels.svg", tmp_path / "fuse.svg"
    done = command.json("graph", model, *ON, *SHAPE, "--svg", kernels, "--unfold")
    assert {"fold_batch_norm", "place", "kernels", "fuse"} <= set(done["passes"])
    text = kernels.read_text(encoding="utf-8")
    assert text.count('class="item kernel vulkan"') == len(done["lines"])
    # Every convolution is in a kernel's border, with its name.
    assert {f"conv2d [Conv@{n}]" for n in range(53)} <= set(re.findall(r">(conv2d .+?)<", text))
    command.json("graph", model, *ON, *SHAPE, "--svg", fuse, "--pass", "fuse")
    text = fuse.read_text(encoding="utf-8")
    before, after = text.split('class="panel"')[1:]
    assert before.count(" gone\"") > after.count(" new\"") > 20
    assert before.count('class="item group') >= 5 <= after.count('class="item group')


def delete_graph(key):
    import webnn_vk

    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        context.delete_graph(key).result()


def test_run_on_an_image_is_what_the_cpu_says(command, model, tmp_path):
    results = []
    for device in ("vulkan", "cpu"):
        path = tmp_path / f"{device}.npz"
        done = command.json("run", model, "--shape", "x=1,3,48,192", "--device", device, "--input",
                            "examples/page.png", "--output", path)
        with np.load(path) as written:
            (array,) = written.values()
        results.append(array)
    assert done["outputs"][0]["shape"] == [1, 2]
    assert_allclose(*results, rtol=1e-4, atol=1e-5)


def test_kernels_are_shown(command, tmp_path):
    weights = {"w": np.eye(64, dtype=np.float32)}
    nodes = [helper.make_node("MatMul", ["x", "w"], ["t"]), helper.make_node("Relu", ["t"], ["y"])]
    ports = {"x": [64, 64]}, {"y": [64, 64]}
    model = write_model(tmp_path / "model.onnx", nodes, *ports, weights)
    kernels = command.json("shader", "list", model, *ON)
    assert [kernel["number"] for kernel in kernels] == list(range(len(kernels)))
    product = next(kernel for kernel in kernels if kernel["template"].startswith("matmul"))
    number = str(product["number"])
    shown = command.json("shader", "show", model, *ON, "--step", number, "--form", "glsl")
    assert shown["glsl"].startswith("#version 450") and shown["constants"] == product["constants"]
    assert product["constants"]["TM"] >= 1 and product["constants"]["LX"] >= 1
    status, out, _ = command("shader", "show", model, *ON, "--step", number, "--form", "spirv")
    assert status == 0 and "OpEntryPoint GLCompute" in out
    status, out, _ = command("shader", "show", model, *ON, "--step", number)
    assert status == 0 and re.search(rf"^Template +{product['template']}$", out, re.MULTILINE)
    assert re.search(rf"^TM +{product['constants']['TM']}$", out, re.MULTILINE)
    status, _, err = command("shader", "show", model, *ON, "--step", "999")
    assert status == 1 and "from 0 on" in err


def test_info_names_quirks(command):
    devices = command.json("info", "--device", "vulkan")["devices"]
    assert len(devices) == 1 and devices[0]["index"] is not None
    if devices[0]["driver"].startswith("llvmpipe"):
        assert "overcommits_memory" in devices[0]["quirks"]
    assert devices[0]["limits"]["max_storage_buffer_range"] >= 1 << 27


def test_info_has_the_profile_and_the_seconds_of_starting(command, vulkan_context):
    begun = time.perf_counter()
    found = command.json("info", "--device", "vulkan")
    profile = DeviceProfile.from_json(json.dumps(found["devices"][0]["profile"]))
    assert profile == vulkan_context._state.device.profile
    assert profile.memory_types and profile.memory_heaps
    seconds = found["start_up"]
    assert seconds.keys() == {"probe", "instance", "device", "self_tests"}
    assert all(value >= 0 for value in seconds.values()) and seconds["device"] > 0
    assert sum(seconds.values()) <= time.perf_counter() - begun
    status, out, _ = command("info", "--device", "vulkan")
    assert status == 0 and out.count("Memory type ") == len(profile.memory_types)


@pytest.mark.parametrize(("setting", "problem"), [
    ("WEBNN_VK_DEVICE=cpu", "the CPU device was asked for"),
    ("WEBNN_VK_DEVICE=none such", "none such"),
    ("WEBNN_VK_MASK=float17", "unknown device feature 'float17'"),
])
def test_info_says_why_no_start_was_measured(command, monkeypatch, setting, problem):
    """Settings with which no context opens don't hide the devices."""
    monkeypatch.setenv("WEBNN_VK_DEVICE", "vulkan")
    monkeypatch.setenv(*setting.split("="))
    found = command.json("info")
    assert found["devices"] and found["start_up"].keys() == {"problem"}
    assert problem in found["start_up"]["problem"]


@pytest.mark.parametrize("calls", [1, 3, 6])
@pytest.mark.parametrize("words", [
    ("run",), ("bench", "--runs", "3"), ("profile", "--runs", "3"),
], ids=lambda words: words[0])
def test_a_device_that_is_unplugged(command, tmp_path, monkeypatch, words, calls):
    """At that call the output is closed: one line reports it, at any moment, and the exit status.
    """
    model = affine(tmp_path / "model.onnx", [1, 3, 8, 8])
    drivers = []

    def opened(device):
        context, driver = open_over(FaultyDriver)
        driver.lose_at(calls)
        drivers.append(driver)
        return context

    monkeypatch.setattr("webnn_vk.tools.loaded_model.open_context", opened)
    status, out, err = command(words[0], model, *words[1:])
    assert drivers[0].injected["lost"] == 1
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("webnn-vk: ") and re.search(r"\blost\b", line), line


def test_a_model_is_tuned(command, tmp_path, monkeypatch):
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    weights = np.linspace(-1, 1, 16 * 96, dtype=np.float32).reshape(16, 96)
    model = write_model(
        tmp_path / "model.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["y"]), helper.make_node("Relu", ["y"], ["z"])],
        {"x": [8, 16]}, {"z": [8, 96]}, {"w": weights},
    )
    quick = ("--candidates", "2", "--rounds", "1")
    tuned = command.json("tune", model, *ON, *quick)
    assert tuned["folder"] == str(tmp_path / "cache" / "tuned")
    assert tuned["seconds"] > 0 and tuned["cpu_seconds"] > 0
    (problem,) = tuned["problems"]
    assert problem["family"] == "matmul" and problem["operators"] == "matmul [y] + relu [z]"
    assert len(problem["measured"]) == 2 and not problem["kept"] and not problem["left"]
    assert {problem["usual"], problem["chosen"]} <= {m["schedule"] for m in problem["measured"]}
    assert all(m["seconds"] > 0 for m in problem["measured"])
    kept = command.json("cache", "stat")["tuned"]
    assert kept["entries"] == 1 and kept["bytes"] > 100
    (problem,) = command.json("tune", model, *ON, *quick)["problems"]
    assert problem["kept"] and not problem["measured"]
    (problem,) = command.json("tune", model, *ON, *quick, "--again")["problems"]
    assert not problem["kept"] and len(problem["measured"]) == 2
    status, out, err = command("tune", model, *ON)
    assert (status, err) == (0, "") and "(kept)" in out
    assert "0 schedules were rejected" in " ".join(out.split())
    assert command.json("cache", "clear", "--only", "tuned")["removed"]["tuned"] == 1

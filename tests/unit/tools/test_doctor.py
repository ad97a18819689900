"""`webnn-vk doctor` and the default that `webnn-vk devices` marks."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import pytest

import webnn_vk
from webnn_vk.api import navigator
from webnn_vk.tools import doctor
from webnn_vk.tools.doctor import Findings

NO_VULKAN = {
    "VK_DRIVER_FILES": "/nonexistent.json",
    "VK_ICD_FILENAMES": "/nonexistent.json",
    "WEBNN_VK_VALIDATE": "0",
}
ADVICE_GPU = "a GPU with a Vulkan driver"


def run(*arguments, **variables):
    environment = {**os.environ, **NO_VULKAN, "WEBNN_VK_DEVICE": "", **variables}
    return subprocess.run(
        [sys.executable, "-m", "webnn_vk", *arguments],
        capture_output=True,
        text=True,
        env=environment,
    )


def device(index, *, gpu=True, unusable=None):
    return {"index": index, "is_gpu": gpu, "unusable": unusable, "text": f"device {index}"}


def findings(**given):
    healthy = {
        "versions": {"webnn_vk": "1"},
        "driver": "",
        "devices": [device(0), device(None, gpu=False)],
        "default": {"index": 0, "name": "device 0", "reason": "the best GPU"},
        "compiler": {"available": True, "version": "glslang 14.2.0 (x)", "in_process": True},
        "pack": {"available": True, "path": "p", "modules": 9, "bytes": 9, "compiler": "glslang"},
        "cache": {"folder": "f", "entries": 2, "bytes": 2_000_000, "problem": ""},
        "environment": {},
    }
    return Findings(**{**healthy, **given})


def test_nothing_is_advised_where_all_is_well():
    assert doctor.advice(findings()) == []


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"devices": [device(0, gpu=False)]}, ADVICE_GPU),
        ({"devices": [device(0, unusable="too old")]}, ADVICE_GPU),
        ({"default": {"index": None, "name": "CPU", "reason": ""}}, "WEBNN_VK_DEVICE=0"),
        (
            {"compiler": {"available": False, "version": "none found", "in_process": False}},
            "install a GLSL compiler",
        ),
        (
            {"compiler": {"available": True, "version": "glslc: 2", "in_process": False}},
            "pip install vkdispatch-vulkan-native",
        ),
        ({"pack": {"available": False}}, "install the wheel"),
        ({"cache": {"folder": None, "problem": ""}}, "unset WEBNN_VK_CACHE=off"),
        ({"cpu_engine": "NumPy 2.4.6"}, "pip install 'webnn_vk[cpu]'"),
        (
            {"cpu_engine": "NumPy 2", "versions": {"onnx": "1", "onnxruntime": "1"}},
            "unset WEBNN_VK_CPU_ENGINE=numpy",
        ),
        ({"environment": {"WEBNN_VK_VALIDATE": "1"}}, "unset WEBNN_VK_VALIDATE: the validation"),
    ],
)
def test_advice(given, words):
    (line,) = doctor.advice(findings(**given))
    assert words in line


@pytest.mark.parametrize(("engine", "devices", "default", "advised"), [
    ("NumPy 2", [device(3, gpu=False), device(None, gpu=False)], None, True),
    ("ONNX Runtime 1", [device(3, gpu=False), device(None, gpu=False)], None, False),
    ("NumPy 2", [device(3, gpu=False), device(None, gpu=False)], 3, False),
    ("NumPy 2", [device(3, gpu=False, unusable="old"), device(None, gpu=False)], None, False),
    ("NumPy 2", [device(None, gpu=False)], None, False),
])
def test_software_vulkan_is_advised_where_numpy_would_compute(engine, devices, default, advised):
    """The same as in the README's limits: with ONNX Runtime the CPU device is the faster one."""
    given = {"index": default, "name": "", "reason": ""}
    said = doctor.advice(findings(cpu_engine=engine, devices=devices, default=given))
    line = "WEBNN_VK_DEVICE=3 takes device 3: software Vulkan, too, is faster than NumPy"
    assert (line in said) == advised


NO_COMPILER = {"available": False, "version": "none found", "in_process": False}


@pytest.mark.parametrize(
    ("given", "line"),
    [
        ({}, "device 0, on Vulkan: fused kernels, compiled by glslang 14.2.0 (x)"),
        (
            {"compiler": NO_COMPILER},
            "device 0, on Vulkan: precompiled kernels, unfused, as there is no GLSL compiler "
            "(none found)",
        ),
        (
            {"compiler": NO_COMPILER, "pack": {"available": False}},
            "the CPU, not device 0, on Vulkan: there is no GLSL compiler (none found) and no "
            "precompiled kernel",
        ),
        (
            {"default": {"index": None, "name": "CPU", "reason": "no Vulkan device (no driver)"}},
            "CPU: no Vulkan device (no driver)",
        ),
        ({"default": None}, "nothing: create_context() fails"),
    ],
)
def test_what_it_runs_on_is_one_line(given, line):
    assert doctor.runs_on(findings(**given)) == line


def test_text_has_a_line_for_each_thing():
    text = doctor.text(findings(problems=["one", "two"], faster=["more"]))
    assert text.startswith("Runs on     device 0, on Vulkan: fused kernels")
    assert "Default     device 0: the best GPU\n" in text
    assert "Pack        9 precompiled shaders" in text and "Cache       2 shaders, 2.00 MB" in text
    assert text.endswith("Faster with more\nProblems    one\n            two")


def test_without_vulkan_it_is_well_and_says_so():
    done = run("doctor")
    assert done.returncode == 0 and done.stderr == ""
    assert re.search(r"^Default +CPU: no Vulkan device \(.*\); the CPU device is used$",
                     done.stdout, re.MULTILINE)
    assert done.stdout.endswith("Problems    none\n")


def test_a_device_that_is_not_there_is_a_problem():
    done = run("doctor", WEBNN_VK_DEVICE="voodoo 5")
    assert done.returncode == 1 and "Traceback" not in done.stderr
    assert re.search(r"Problems +ml\.create_context\(\) fails: ", done.stdout)


def test_json_is_alone_on_stdout(tmp_path):
    pack = tmp_path / "pack.bin"
    pack.write_bytes(b"no pack")
    done = run("doctor", "--json", WEBNN_VK_PACK=str(pack), WEBNN_VK_CACHE=str(tmp_path))
    found = json.loads(done.stdout)
    assert done.returncode == 1 and len(found["problems"]) == 1
    assert str(pack) in found["problems"][0] and not found["pack"]["available"]
    assert found["cache"] == {"folder": str(tmp_path), "entries": 0, "bytes": 0, "problem": ""}
    assert found["default"]["index"] is None and found["versions"]["numpy"]


@pytest.mark.parametrize("system", ["linux", "win32", "darwin"])
def test_without_a_driver_the_reason_says_what_to_install(system):
    # The loader exists; the driver is missing.
    code = f"import sys, numpy; import webnn_vk.driver.vulkan.binding; sys.platform = {system!r}\n"
    code += "import webnn_vk.tools.devices as devices; print(devices.vulkan_problem())"
    environment = {**os.environ, **NO_VULKAN}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                          env=environment)
    assert done.returncode == 0, done.stderr
    if "loader library" in done.stdout:
        pytest.skip("no Vulkan loader")
    wanted = {
        "linux": ["Debian, Ubuntu, Fedora", "mesa-vulkan-drivers", "Arch: pacman -S vulkan-radeon",
                  "NVIDIA: its own driver", "the GPU vendor's driver"],
        "win32": ["the GPU vendor's driver"],
        "darwin": ["brew install molten-vk"],
    }[system]
    assert done.stdout.startswith("the Vulkan loader found no driver (")
    assert all(words in done.stdout for words in wanted), done.stdout


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="needs file modes")
def test_a_cache_that_others_may_write_is_a_problem(tmp_path):
    (tmp_path / "spirv").mkdir()
    (tmp_path / "spirv").chmod(0o777)
    done = run("doctor", WEBNN_VK_CACHE=str(tmp_path))
    assert done.returncode == 1 and "others may write to it" in done.stdout


def test_devices_marks_the_default():
    done = run("devices")
    assert done.returncode == 0
    assert re.fullmatch(r"\* cpu  CPU .*\n\* the default: no Vulkan device .*\n", done.stdout)
    (cpu,) = json.loads(run("devices", "--json").stdout)
    assert cpu["default"] and cpu["index"] is None and cpu["type"] == "numpy"
    wrong = run("devices", WEBNN_VK_DEVICE="voodoo 5")
    assert wrong.returncode == 0 and "no default: " in wrong.stdout


def test_the_warning_without_a_compiler_says_what_runs_where():
    with_pack = navigator._without_compiler("GPU X", has_pack=True)
    assert "GPU X runs the precompiled shaders, without fusion" in with_pack
    without = navigator._without_compiler("GPU X", has_pack=False)
    assert "all operators run on the CPU, not on GPU X" in without
    assert "precompiled shaders are used" not in without


def test_the_warning_names_the_users_line(tmp_path):
    script = tmp_path / "first.py"
    script.write_text("import webnn_vk\n\ncontext = webnn_vk.ml.create_context().result()\n")
    environment = {**os.environ, **NO_VULKAN, "WEBNN_VK_DEVICE": ""}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, env=environment)
    warned, line = done.stderr.splitlines()
    assert warned.startswith(f"{script}:3: RuntimeWarning: webnn_vk: no Vulkan device (")
    assert warned.endswith("; the CPU device is used")
    assert line == "  context = webnn_vk.ml.create_context().result()"


@pytest.mark.parametrize("device", ["", "cpu", "voodoo 5"])
def test_the_devices_infos_mark_the_default(device, monkeypatch):
    """For the list, and for a context: on the default device, and on another one."""
    monkeypatch.setenv("WEBNN_VK_DEVICE", device)
    listed = webnn_vk.devices()
    assert sum(info.default for info in listed) == (device != "voodoo 5")
    cpu = listed[-1]
    if device == "cpu":
        assert cpu.default and repr(cpu) == f"<DeviceInfo {cpu}, the default>"
        assert "<tr><td>default</td><td>yes</td></tr>" in cpu._repr_html_()
    on_cpu = replace(webnn_vk.Settings.from_environment(), device="cpu")
    with webnn_vk.ml.create_context(settings=on_cpu).result(60) as context:
        assert context.device_info == cpu
        assert context.device_info.default == cpu.default

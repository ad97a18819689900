"""`webnn-vk`: every command's help, and the messages for wrong use and for missing files."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from onnx import helper

from tests.support.command_line import Command, affine, write_model
from webnn_vk.tools import cli


def commands():
    """Path → the command, including groups."""
    root = typer.main.get_command(cli.app)
    found, waiting = {}, [((), root)]
    while waiting:
        path, command = waiting.pop()
        found[path] = command
        waiting += [((*path, name), sub) for name, sub in getattr(command, "commands", {}).items()]
    return found


COMMANDS = commands()


@pytest.fixture
def command(capsys):
    return Command(capsys)


def test_the_commands_are_those_of_the_api():
    names = {path[0] for path in COMMANDS if path}
    assert names >= {"run", "bench", "check", "graph", "export", "info", "devices", "doctor",
                     "operators", "cache", "demo", "profile", "shader", "tune"}


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_help_fits_on_a_screen_and_shows_an_example(command, path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    status, out, err = command(*path, "--help")
    lines = out.splitlines()
    assert (status, err) == (0, "")
    assert len(lines) <= (24 if path else 32) and max(map(len, lines)) <= 80, out
    text = " ".join(out.split())
    example = re.search(r"Example: webnn-vk (.+?)(?:\.? Exit status|\. |—|$)", text)
    assert example is not None, out
    words = shlex.split(example[1])
    assert tuple(words[: len(path)]) == path
    # Its options are the command's own.
    found = COMMANDS[()]
    while words and words[0] in getattr(found, "commands", {}):
        found = found.commands[words.pop(0)]
    known = {option for parameter in found.params for option in parameter.opts}
    # Unknown arguments of a command are passed on to the code generator.
    if not found.context_settings.get("ignore_unknown_options"):
        assert {word for word in words if word.startswith("-")} <= known


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_commands_that_print_take_json(path):
    leaf = not getattr(COMMANDS[path], "commands", None)
    # The code generator's own, tested in `test_commands.py`.
    handed_on = COMMANDS[path].context_settings.get("ignore_unknown_options")
    if leaf and not handed_on:
        assert "--json" in {o for parameter in COMMANDS[path].params for o in parameter.opts}


WRONG_USE = [
    ("voodoo", "No such command 'voodoo'"),
    ("run", "Missing argument 'MODEL'"),
    ("batch MODEL nowhere.csv out", "path 'nowhere.csv' does not exist"),
    ("run MODEL --seed -1", "'--seed'"),
    ("run MODEL --shape x", "'x' is not NAME=1,3,48,192"),
    ("run MODEL --shape x=1,0", "'x=1,0' is not NAME=1,3,48,192"),
    ("run MODEL --mean red", "--mean: 'red' is not a number"),
    ("run MODEL --fast", "No such option.*--fast"),
    ("generate FOLDER", "Missing argument 'PROMPT'"),
    ("generate FOLDER x --max-new-tokens 0", "'--max-new-tokens'"),
    ("bench MODEL --runs 0", "'--runs'"),
    ("tune MODEL --rounds 0", "'--rounds'"),
    ("tune MODEL --candidates 1", "'--candidates'"),
    ("bench MODEL --runs many", "'--runs'"),
    ("bench MODEL --compare tensorrt", "'--compare'.*tensorrt"),
    ("shader show MODEL --form metal", "'--form'.*metal"),
    ("shader operator matmul --shape a", "'a' is not NAME=1,3,48,192"),
    ("shader operator matmul --option 3", "'3' is not NAME=VALUE"),
    ("shader inspect scatter_clear --fast", "unrecognized arguments: --fast"),
    ("shader compile", "Missing argument 'TEMPLATE'"),
    ("shader compile scatter_clear --fast", "unrecognized arguments: --fast"),
    ("profile MODEL --every 0", "'--every'"),
    ("graph MODEL --pass fuse", "--pass is for --svg FILE"),
    ("graph MODEL --unfold", "--unfold is for --svg FILE"),
    ("check", "Missing argument 'MODEL'"),
    ("graph", "Missing argument 'MODEL'"),
    ("info MODEL", "unexpected extra argument"),
    ("devices MODEL", "unexpected extra argument"),
    ("doctor MODEL", "unexpected extra argument"),
    ("operators MODEL", "unexpected extra argument"),
    ("cache stat MODEL", "unexpected extra argument"),
    ("cache verify MODEL", "unexpected extra argument"),
    ("shader list MODEL MODEL", "unexpected extra argument"),
    ("shader describe", "Missing argument 'TEMPLATE'"),
    ("export MODEL", "Missing argument 'FILE'"),
    ("cache clear --only models", "'--only'.*models"),
    ("demo ocr a.png --top 2", "--top is for the sentences"),
    ("demo generate x --top 2", "--top is for the sentences, not for generate"),
    ("demo generate x --output y.png", "--output is only for ocr"),
    ("demo one two", "the second argument, two, is only for ocr"),
]


@pytest.mark.parametrize(("words", "message"), WRONG_USE, ids=[words for words, _ in WRONG_USE])
def test_wrong_use(command, tmp_path, words, message):
    model = affine(tmp_path / "model.onnx")
    status, out, err = command(*words.replace("MODEL", str(model)).split())
    assert (status, out) == (2, "")
    (line,) = err.splitlines()
    assert re.match(r"webnn-vk.*: error: ", line) and re.search(message, line), line


FAILURES = [
    ("generate nowhere x --device cpu", "nowhere is neither a folder nor a GGUF file"),
    ("generate folder.onnx x --device cpu", "config.json can't be read"),
    ("run nowhere.onnx", "no such file: nowhere.onnx"),
    ("run folder.onnx", "it is a folder: folder.onnx"),
    ("run empty.onnx --device cpu", "it holds no graph"),
    ("run empty.webnn --device cpu", "empty.webnn: line 1: "),
    ("run cut.onnx --device cpu", "no ONNX file: "),
    ("run garbage.webnn --device cpu", "garbage.webnn: line 1: "),
    ("run garbage.onnx --device cpu", "garbage.onnx: no ONNX file: "),
    ("run frob.onnx --device cpu", "Frobnicate 'y': ONNX has no such operator in opset 20"),
    ("run cache:", "the key is missing"),
    ("export model.onnx cache:", "the key is missing"),
    ("run model.onnx --device 99", "--device 99 matches no device|99.*no Vulkan"),
    ("run model.onnx --device cpu --input empty.npy", "cannot read the input empty.npy: "),
    ("run model.onnx --device cpu --input empty.npz", "cannot read the input empty.npz: "),
    ("run model.onnx --device cpu --input empty.png", "empty.png is not an image"),
    ("run model.onnx --device cpu --input words.npy", "words.npy holds <U1: real numbers"),
    ("run model.onnx --device cpu --input complex.npy", "complex.npy holds complex64: real num"),
    ("run model.onnx --device cpu --input flat.npy", r"has the shape \[batch, 3, .*, not \[2, 3\]"),
    ("run model.onnx --device cpu --input two.npz", "there is no input 'a'; inputs: x"),
    ("run model.onnx --device cpu --input 1,2,3", r"the array is \[3\], the model takes \[1, 3, "),
    ("run model.onnx --device cpu --output full.npz", "cannot write full.npz: No space left"),
    ("profile model.onnx --device cpu --html full.html", "cannot write full.html: No space left"),
    ("profile model.onnx --device cpu --trace full.json", "cannot write full.json: No space left"),
    ("graph model.onnx --device cpu --html full.html", "cannot write full.html: No space left"),
    ("graph model.onnx --device cpu --svg full.svg", "cannot write full.svg: No space left"),
    ("export model.onnx full.onnx --device cpu", "cannot write full.onnx: No space left"),
    ("shader list model.onnx --chip VOODOO", "VOODOO can't be compiled for: |RADV"),
    ("shader stats model.onnx --chip dg3", "no chip is called dg3|dg3"),
    ("shader stats nowhere.onnx --chip dg2", "no such file: nowhere.onnx"),
    ("shader operator matmul --shape a=2,3 --shape b=4,5 --chip NAVI21", "matmul: a is float32"),
    ("run model.txt", "a model is a .onnx or .webnn file, or cache:KEY"),
    ("run broken.onnx --device cpu", "broken.onnx: "),
    ("run broken.webnn --device cpu", "broken.webnn: "),
    ("run cache:nothing --device cpu", "no graph is saved under this key"),
    ("run model.onnx --device voodoo", "--device voodoo matches no device|voodoo.*no Vulkan"),
    ("info --device voodoo", "--device voodoo matches no device|voodoo.*no Vulkan"),
    ("run model.onnx --device cpu --input x=nowhere.npy", "no such file: nowhere.npy|No such file"),
    ("run model.onnx --device cpu --input x=nowhere.png", "no such file: nowhere.png"),
    ("run model.onnx --device cpu --input x=broken.npy", "cannot read the input broken.npy"),
    ("run model.onnx --device cpu --input x=broken.png", "broken.png is not an image"),
    ("run model.onnx --device cpu --input x=blue", "'blue' is not one of: random, a number"),
    ("run model.onnx --device cpu --input z=1", "there is no input 'z'; inputs: x"),
    ("run model.onnx --device cpu --input 1 --input 2", "the model has 1 inputs, more are given"),
    ("run model.onnx --device cpu --shape z=1", "there is no input 'z'; inputs: x"),
    ("run model.onnx --device cpu --shape x=1,4,5,5", r"input 'x' has the shape \[batch, 3, "),
    ("run model.onnx --device cpu --output y.txt", "a .npz file"),
    ("run model.onnx --device cpu --output no/y.npz", "cannot write no/y.npz"),
    ("export model.onnx model.tflite", "a model is written as .onnx, .webnn or cache:KEY"),
    ("export model.onnx model.webnn --opset 21", "--opset is only for .onnx files"),
    ("export model.onnx no/model.onnx --device cpu", "cannot write no/model.onnx"),
    ("profile model.onnx --device cpu --html no/page.html", "cannot write no/page.html"),
    ("profile model.onnx --device cpu --trace no/trace.json", "cannot write no/trace.json"),
    ("graph model.onnx --device cpu --svg no/graph.svg", "cannot write no/graph.svg"),
    ("graph model.onnx --device cpu --html no/graph.html", "cannot write no/graph.html"),
    ("graph model.onnx --device cpu --svg graph.png", "graph.png: what is written is .svg"),
    ("profile model.onnx --device cpu --html p.pdf", "p.pdf: what is written is .html or .htm"),
    ("profile model.onnx --device cpu --trace trace.txt", "trace.txt: what is written is .json"),
    ("graph model.onnx --device cpu --svg y.svg --pass fuze", "there is no such pass.*fuse"),
    ("graph model.onnx --device cpu --svg y.svg --pass fuse",
     "it changed nothing in model.onnx; passes that did: place"),
    ("graph nowhere.onnx", "no such file: nowhere.onnx"),
    ("bench nowhere.onnx", "no such file: nowhere.onnx"),
    ("profile nowhere.onnx", "no such file: nowhere.onnx"),
    ("shader list nowhere.onnx", "no such file: nowhere.onnx"),
    ("shader show model.onnx --device cpu", "the CPU device has no kernels"),
    ("shader show model.onnx --form isa --device cpu", "needs a --chip"),
    ("shader operator conv3d --chip NAVI21", "no operator is called conv3d; did you mean conv2d"),
    ("shader stats model.onnx --chip dg3", "no chip is called dg3|dg3"),
    ("shader stats nowhere.onnx --chip dg2", "no such file: nowhere.onnx"),
    ("shader operator matmul --shape a=2,3 --constant c", "--constant c: no --shape names it"),
    ("shader inspect nothing", "no template 'nothing"),
    ("shader inspect nothing.spv", "nothing.spv: there is no such file"),
    ("shader compile nothing", "no template 'nothing"),
    ("shader describe nothing", "no template 'nothing"),
    ("bench cache:nothing --compare onnxruntime --device cpu", "no graph is saved"),
    ("tune model.onnx --device cpu", "has no kernels to tune: --device vulkan takes"),
    ("tune cache:nothing", "a saved graph is compiled already"),
    ("check unknown.onnx --device cpu --shape y=1", "there is no input 'y'"),
]


#: A file there can be opened, but not written.
FULL = Path("/dev/full")


def odd_files(folder: Path) -> None:
    """Files whose contents don't match their names, or don't fit a model."""
    (folder / "folder.onnx").mkdir()
    for name in ("empty.onnx", "empty.webnn", "empty.npy", "empty.npz", "empty.png"):
        (folder / name).touch()
    (folder / "cut.onnx").write_bytes((folder / "model.onnx").read_bytes()[:-20])
    for name in ("garbage.onnx", "garbage.webnn"):
        (folder / name).write_bytes(np.random.default_rng(0).bytes(3000))
    frob = [helper.make_node("Frobnicate", ["x"], ["y"])]
    write_model(folder / "frob.onnx", frob, {"x": [4]}, {"y": [4]}, {})
    np.save(folder / "words.npy", np.array(["a"]))
    np.save(folder / "complex.npy", np.zeros((1, 3, 4, 4), np.complex64))
    np.save(folder / "flat.npy", np.zeros((2, 3), np.float32))
    np.savez(folder / "two.npz", a=np.zeros(3), b=np.zeros(2))
    for ending in ("npz", "html", "json", "svg", "onnx"):
        (folder / f"full.{ending}").symlink_to(FULL)


@pytest.mark.parametrize(("words", "message"), FAILURES, ids=[words for words, _ in FAILURES])
def test_failures(command, tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    affine(tmp_path / "model.onnx")
    affine(tmp_path / "unknown.onnx")
    for name in ("broken.onnx", "broken.webnn", "broken.npy", "broken.png"):
        (tmp_path / name).write_bytes(b"\x93NUM broken {")
    odd_files(tmp_path)
    if "full." in words and not FULL.exists():
        pytest.skip("no device that is always full")
    status, out, err = command(*words.split())
    assert (status, out) == (1, "")
    (line,) = err.splitlines()
    assert line.startswith("webnn-vk: ") and re.search(message, line), line


def test_every_command_is_in_the_tables():
    """With each of the options that a file or a name can make fail."""
    tried = [words.split() for words, _ in (*WRONG_USE, *FAILURES)]
    for path, command in COMMANDS.items():
        if not getattr(command, "commands", None):
            assert any(tuple(words[: len(path)]) == path for words in tried), path
    for option in ("--svg", "--html", "--trace", "--pass", "--every", "--output", "--input",
                   "--shape", "--device", "--opset", "--only", "--form"):
        assert any(option in words for words in tried), option


@pytest.mark.skipif(os.name != "posix", reason="of signals and pipes")
class TestOutside:
    """External events during a command, in a new process."""

    @staticmethod
    def start(*words: str, **pipes: Any) -> subprocess.Popen[str]:
        return subprocess.Popen([sys.executable, "-m", "webnn_vk", *words], text=True,
                                stderr=subprocess.PIPE, **pipes)

    @pytest.mark.parametrize("words", ["operators --json", "--version", "--help"])
    def test_a_reader_that_went_away_is_no_fault(self, words):
        read, write = os.pipe()
        os.close(read)
        process = self.start(*words.split(), stdout=write)
        os.close(write)
        assert (process.communicate(timeout=120)[1], process.returncode) == ("", 0)

    @pytest.mark.skipif(not FULL.exists(), reason="no device that is always full")
    @pytest.mark.parametrize("words", ["operators --json", "--version", "--help"])
    def test_a_full_disk_is_said_in_a_line(self, words):
        with FULL.open("w") as full:
            process = self.start(*words.split(), stdout=full)
            assert process.communicate(timeout=120)[1].splitlines() == [
                "webnn-vk: stdout: No space left on device"
            ]
        assert process.returncode == 1

    @pytest.mark.parametrize(("end", "status", "said"), [
        ("SystemExit(3)", 3, ""),
        ("OSError(5, 'Input/output error')", 1, "webnn-vk: Input/output error\n"),
        ("OSError(5, 'Input/output error', 'y.npy')", 1, "webnn-vk: y.npy: Input/output error\n"),
        ("OSError('lost')", 1, "webnn-vk: lost\n"),
    ])
    def test_what_no_command_handles(self, end, status, said):
        """Neither an exit with a status nor an error of another file is attributed to stdout."""
        code = f"import sys\nfrom webnn_vk.tools import check, cli\ndef work(options):\n" \
               f"    raise {end}\ncheck.check = work\nsys.exit(cli.main(['check', 'cache:x']))"
        done = subprocess.run([sys.executable, "-c", code], text=True, capture_output=True)
        assert (done.returncode, done.stdout, done.stderr) == (status, "", said)

    def test_ctrl_c(self):
        """While a command is running."""
        code = "import sys, threading\nfrom webnn_vk.tools import check, cli\n" \
               "def work(options):\n    print('works', flush=True)\n" \
               "    threading.Event().wait()\n" \
               "check.check = work\nsys.exit(cli.main(['check', 'cache:x']))"
        process = subprocess.Popen([sys.executable, "-c", code], text=True,
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        assert process.stdout.readline() == "works\n"
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=120) == ("", "webnn-vk: interrupted\n")
        assert process.returncode == 130


def test_without_arguments_the_help_is_shown(command):
    status, out, err = command()
    assert (status, out) == (2, "") and "Commands" in err


def run_alone(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          env={**os.environ, "COLUMNS": "80"})


@pytest.mark.parametrize("arguments", [["--version"], ["run", "--help"], ["voodoo"]], ids=" ".join)
def test_what_says_something_of_itself_is_light(arguments):
    code = f"from webnn_vk.tools.cli import main\nmain({arguments})\nimport json, sys\n" \
           "print(json.dumps(sorted(sys.modules)))"
    loaded = set(json.loads(run_alone(code).stdout.splitlines()[-1]))
    assert "typer" in loaded
    heavy = {"numpy", "vulkan", "jinja2", "onnx", "onnxruntime", "webnn_vk.api.context"}
    assert loaded & heavy == set()


@pytest.mark.parametrize(("typed", "offered"), [
    ("webnn-vk ben", ["bench"]),
    ("webnn-vk run small", ["small.onnx", "small.webnn"]),
    ("webnn-vk bench x.onnx --device c", ["cpu"]),
    ("webnn-vk cache ", ["stat", "verify", "clear"]),
])
def test_shell_completion(tmp_path, typed, offered):
    for name in ("small.onnx", "small.webnn", "small.txt"):
        (tmp_path / name).touch()
    variables = {"_WEBNN_VK_COMPLETE": "complete_bash", "COMP_WORDS": typed,
                 "COMP_CWORD": str(len(typed.split(" ")) - 1)}
    done = subprocess.run([sys.executable, "-m", "webnn_vk"], capture_output=True, text=True,
                          env={**os.environ, **variables}, cwd=tmp_path)
    assert done.stdout.split() == offered, done.stderr

"""mypy --strict refuses wrong programs at the wrong lines, and accepts right ones; with --explore
pyright too."""

import json
import re
import shutil
import subprocess
import sys
import textwrap
import typing
from pathlib import Path

import pytest

import webnn_vk.typing as types
from tests.support.paths import ROOT
from webnn_vk.compiler.types.data_types import ALL_TYPES, MLOperandDataType

HERE = Path(__file__).parent
CHECKERS = ["mypy", pytest.param("pyright", marks=pytest.mark.explore)]
WRONG, RIGHT = HERE / "wrong.py", HERE / "right.py"
EXAMPLES = sorted((ROOT / "examples").glob("[!_]*.py"))
#: The cells of the notebook, in a function that awaits.
NOTEBOOK = "notebook.py"
MARKED = {
    number for number, line in enumerate(WRONG.read_text().splitlines(), 1) if "# wrong: " in line
}


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The files that are checked."""
    cells = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))["cells"]
    source = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "code")
    notebook = tmp_path_factory.mktemp("notebook") / NOTEBOOK
    notebook.write_text(f"async def session() -> None:\n{textwrap.indent(source, '    ')}\n")
    return [WRONG, RIGHT, *EXAMPLES, notebook]


@pytest.fixture(scope="module")
def mypy(tmp_path_factory, programs):
    """File name → lines with errors."""
    pytest.importorskip("mypy")
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty",
               "--follow-imports=silent", "--explicit-package-bases", "--show-absolute-path",
               "--cache-dir", tmp_path_factory.mktemp("mypy"), *programs]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 1, done.stdout + done.stderr
    found = re.findall(r"^(.+):(\d+): error: ", done.stdout, re.MULTILINE)
    return lines([(file, int(line)) for file, line in found], programs), done.stdout


@pytest.fixture(scope="module")
def pyright(programs):
    """File name → lines with errors. Its package downloads the program itself if npm can."""
    pytest.importorskip("pyright")
    if shutil.which("node") is None:
        pytest.skip("pyright needs node")
    command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
    done = subprocess.run([*command, *programs], capture_output=True, text=True, cwd=ROOT)
    try:
        said = json.loads(done.stdout)["generalDiagnostics"]
    except ValueError:
        pytest.skip(f"pyright does not run here: {(done.stderr or done.stdout).strip()[-200:]}")
    found = [(d["file"], d["range"]["start"]["line"] + 1) for d in said if d["severity"] == "error"]
    return lines(found, programs), done.stdout


def lines(found, programs):
    return {
        path.name: {line for file, line in found if Path(file).name == path.name}
        for path in programs
    }


def test_there_are_enough_wrong_programs():
    assert len(MARKED) >= 20


@pytest.mark.parametrize("checker", CHECKERS)
def test_wrong_programs_are_refused_where_they_are_wrong(checker, request):
    found, text = request.getfixturevalue(checker)
    assert found[WRONG.name] == MARKED, text


@pytest.mark.parametrize("checker", CHECKERS)
def test_right_programs_are_accepted(checker, request):
    found, text = request.getfixturevalue(checker)
    assert found[RIGHT.name] == set(), text


@pytest.mark.parametrize("name", [*(path.name for path in EXAMPLES), NOTEBOOK])
@pytest.mark.parametrize("checker", CHECKERS)
def test_examples_are_accepted(checker, name, request):
    pytest.importorskip("fastapi")
    found, text = request.getfixturevalue(checker)
    assert found[name] == set(), text


def test_the_session_on_a_gpu_is_typed(tmp_path):
    """Most of it runs only where there is a GPU, or a peer."""
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--no-pretty",
         "--follow-imports=silent", "--explicit-package-bases", "--ignore-missing-imports",
         "--cache-dir", tmp_path, "bench/gpu_session.py", "bench/gpu"],
        capture_output=True, text=True, cwd=ROOT,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_types_are_those_of_the_library():
    assert typing.get_args(MLOperandDataType) == ALL_TYPES
    assert set(types.MLConv2dOptions.__annotations__) == {
        "padding", "strides", "dilations", "groups", "input_layout", "filter_layout", "bias",
        "label",
    }
    for name in types.__all__:
        assert hasattr(types, name)

"""Every command's end when its output is closed or Ctrl-C is pressed: one line, no traceback."""

from __future__ import annotations

import builtins
import importlib.util
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import webnn_vk
from tests.support.command_line import affine
from tests.support.drivers import require_vulkan
from tests.support.text_models import text_folder
from tests.unit.tools.test_cli import COMMANDS
from webnn_vk.codegen.describe import table
from webnn_vk.codegen.spec import KernelSpec
from webnn_vk.codegen.store import ShaderStore
from webnn_vk.tools import cli

pytestmark = [
    pytest.mark.device,
    pytest.mark.skipif(os.name != "posix", reason="of signals and pipes"),
]

ON, SHAPE = "--device vulkan", "--shape x=1,3,4,4"
#: Every command with arguments that make it print something.
LINES = {
    "batch": "batch model.onnx rows.parquet done --device cpu",
    "run": f"run model.onnx {SHAPE} {ON} --top",
    "bench": f"bench model.onnx {SHAPE} {ON} --runs 2",
    "profile": f"profile model.onnx {SHAPE} {ON} --runs 1",
    "tune": f"tune model.onnx {SHAPE} {ON} --rounds 1",
    "check": f"check model.onnx {SHAPE} {ON}",
    "graph": f"graph model.onnx {SHAPE} {ON}",
    "export": f"export model.onnx out.webnn {SHAPE} {ON}",
    "info": "info",
    "devices": "devices",
    "doctor": "doctor",
    "operators": "operators",
    "cache stat": "cache stat",
    "cache verify": "cache verify",
    "cache clear": "cache clear",
    "demo": "demo headache --device cpu",
    "generate": f"generate decoder hello --max-new-tokens 2 --temperature 0 {ON}",
    "shader list": f"shader list model.onnx {SHAPE} {ON}",
    "shader show": f"shader show model.onnx {SHAPE} {ON}",
    "shader stats": f"shader stats model.onnx {SHAPE} --chip NAVI21",
    "shader operator": f"shader operator relu --shape input=8 {ON}",
    "shader describe": "shader describe scatter_clear",
    "shader compile": "shader compile scatter_clear --buffer slots:uint32:w:4 --param count",
    "shader inspect": "shader inspect clear.spv",
}
COMMAND = pytest.mark.parametrize("words", LINES.values(), ids=LINES)


@pytest.fixture
def ready(tmp_path, monkeypatch):
    """A folder with the files that the commands need."""
    require_vulkan()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WEBNN_VK_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(mode=0o700)
    affine(tmp_path / "model.onnx")

    def prepared(words: str) -> list[str]:
        if words.startswith("shader inspect"):
            compiled = LINES["shader compile"].split()
            assert cli.main([*compiled, "-o", "clear.spv"]) == 0
        if words.startswith("generate"):
            text_folder(tmp_path / "decoder")
        if words.startswith("batch"):
            computed(tmp_path)
        return words.split()

    return prepared


def computed(folder: Path) -> None:
    """Rows, and their results in the folder "done": batch then has nothing to do for which it would
    start Ray, whose own end is tested in tests/system/distributed."""
    for package in ("pyarrow", "ray"):
        if importlib.util.find_spec(package) is None:
            pytest.skip(f"{package} is not installed")
    import pyarrow as pa
    import pyarrow.parquet as parquet

    from webnn_vk.tools import batch
    from webnn_vk.tools.inputs import ImageScale

    parquet.write_table(pa.table({"x": [[[[0.5] * 4] * 4] * 3] * 3}), folder / "rows.parquet")
    job = batch.Job(str(folder / "model.onnx"), folder / "done", {}, None, 64, ImageScale(), "cpu",
                    skip=False)
    parts = [*batch._parts(folder / "rows.parquet", 64)]
    batch._keep_plan(job, parts)
    assert batch.Worker(job, parts)({"part": 0}) == {"error": "", "fatal": False}


def test_every_command_is_tried():
    leaves = {" ".join(path) for path, c in COMMANDS.items() if not getattr(c, "commands", None)}
    assert leaves == LINES.keys()


def broken_pipe():
    read, write = os.pipe()
    os.close(read)
    return open(write, "w")


@pytest.mark.sample(0.4)
@COMMAND
def test_a_reader_that_went_away(ready, monkeypatch, capsys, words):
    """`webnn-vk … | head -0`: no message, and no error."""
    words = ready(words)
    capsys.readouterr()
    stream = broken_pipe()
    monkeypatch.setattr(sys, "stdout", stream)
    status = cli.main(words)
    stream.close()
    assert (status, capsys.readouterr().err) == (0, "")


@pytest.mark.sample(0.4)
@COMMAND
def test_a_closed_stdout(ready, monkeypatch, capsys, words):
    """`webnn-vk … >&-`: the output is lost, and a line says so."""
    words = ready(words)
    capsys.readouterr()
    monkeypatch.setattr(sys, "stdout", None)
    status = cli.main(words)
    sys.stdout.close()
    (line,) = capsys.readouterr().err.splitlines()
    assert (status, line) == (1, "webnn-vk: stdout: Bad file descriptor")


@pytest.mark.parametrize("closed", ["0", "1", "2", "012"])
def test_closed_streams_stay_apart_from_files(tmp_path, closed):
    """A file that a command opens never becomes its standard output: a file on descriptor 1 would
    get drivers' messages."""
    ends = " ".join(f"{number}>&-" if number != "0" else "0<&-" for number in closed)
    code = "import os, sys\nfrom webnn_vk.tools import cli\nsys.argv[1:] = ['operators']\n" \
           "status = cli.main()\nfile = open('opened', 'w')\n" \
           "file.write(f'{status} {file.fileno()}')\n"
    done = subprocess.run(["sh", "-c", f'"$0" -c "$1" {ends}', sys.executable, code],
                          cwd=tmp_path, capture_output=True, text=True)
    status, number = map(int, (tmp_path / "opened").read_text().split())
    assert status == ("1" in closed) and number > 2
    assert done.stdout.startswith("| data types |") == ("1" not in closed)
    assert done.stderr == "webnn-vk: stdout: Bad file descriptor\n" * (closed == "1")


#: Sends Ctrl-C when the module with this number is looked up ("own": the first of our modules that
#: the command itself loads), and says how many there were.
INTERRUPTING = """
import json, os, signal, sys
import webnn_vk.__main__ as entry
at, count = sys.argv.pop(1), 0
class Looking:
    def find_spec(self, name, path=None, target=None):
        global at, count
        count += 1
        begun = hasattr(sys.modules.get("webnn_vk.tools.cli"), "demo")
        if at == str(count) or at == "own" and begun and name.startswith("webnn_vk."):
            at = ""
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Looking())
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.argv[0] = "webnn-vk"
status = entry.main()
print(json.dumps(count), file=sys.stderr) if at == "0" else None
sys.exit(status)
"""


def interrupted(at, words):
    done = subprocess.run([sys.executable, "-c", INTERRUPTING, str(at), *words],
                          capture_output=True, text=True, timeout=240)
    return done.returncode, done.stderr


@pytest.mark.sample(0.4)
@COMMAND
def test_ctrl_c_while_a_command_is_loaded(ready, words):
    assert interrupted("own", ready(words)) == (130, "webnn-vk: interrupted\n")


@pytest.mark.parametrize("words", [LINES["check"], LINES["operators"]])
def test_ctrl_c_while_modules_are_loaded(ready, words):
    """At the first one, before the command line's own modules are loaded, and in the middle."""
    words = ready(words)
    status, err = interrupted(0, words)
    assert status == 0, err
    count = json.loads(err.splitlines()[-1])
    assert count > 100
    for at in (1, *(n * count // 8 for n in range(1, 8))):
        assert interrupted(at, words) == (130, "webnn-vk: interrupted\n"), (at, count)


@pytest.mark.parametrize("words", ["stat", "verify", "clear"])
def test_the_cache_beside_a_process_that_clears(ready, tmp_path, monkeypatch, capsys, words):
    """Files vanish before any of the command's calls: that is not reported."""
    ready("")
    cache, kept = tmp_path / "cache", tmp_path / "kept"
    spec = KernelSpec.from_json(table()["scatter_clear.comp.j2"]["example"])
    with webnn_vk.ml.create_context(accelerated=False).result() as context:
        builder = webnn_vk.MLGraphBuilder(context)
        x = builder.input("x", {"data_type": "float32", "shape": [2]})
        graph = builder.build({"y": builder.neg(x)}).result()
        for key in ("one", "two"):
            context.save_graph(key, graph).result()
    (cache / "tuned").mkdir(mode=0o700)
    for name in ("a.json", "b.json", "c.probe"):
        (cache / "tuned" / name).write_text("{}")
    ShaderStore(cache, pack=None).get([spec])
    assert len([path for path in cache.rglob("*") if path.is_file()]) >= 3 + 1 + 2 * 3
    cache.rename(kept)

    def calls(vanish: int) -> int:
        """How many calls on files there are; before the call with this number all files vanish."""
        shutil.rmtree(cache, ignore_errors=True)
        shutil.copytree(kept, cache)
        count = 0
        with monkeypatch.context() as patch:
            def watched(real):
                def call(*given, **options):
                    nonlocal count
                    if str(cache) in str(given[0]):
                        count += 1
                        if count == vanish:
                            for path in [*cache.rglob("*")]:
                                if not path.is_dir():
                                    path.unlink()
                    return real(*given, **options)

                return call

            for module, name in ((os, "lstat"), (os, "stat"), (os, "unlink"), (os, "open"),
                                 (io, "open"), (builtins, "open"), (os, "scandir")):
                patch.setattr(module, name, watched(getattr(module, name)))
            status = cli.main(["cache", words])
        out, err = capsys.readouterr()
        # They are not schedules: reported for the files that were read.
        assert (status, err) == (words == "verify" and "damaged schedule" in out, ""), vanish
        assert "damaged graph" not in out and "damaged shader" not in out, vanish
        return count

    count = calls(0)
    assert count > 10
    for vanish in range(1, count + 1):
        calls(vanish)

"""The guides for contributors work as written. (The guide for operators: test_adding.)"""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from tests.support.drivers import require_vulkan
from tests.system.docs import guides

#: How many files each guide says to write or change, and how many it really does.
FILES = {
    "adding-an-operator": ("one", 1),
    "adding-a-pass": ("one", 1),
    "adding-a-kernel": ("three", 3),
    "adding-a-driver": ("two", 2),
    "adding-a-data-type": ("five", 5),
}
FOLLOWED = [name for name in FILES if name != "adding-an-operator"]


def files_of(name: str) -> set[str]:
    """Files that a guide counts: the files that it creates, or else the files that it changes."""
    text = guides.page(name)
    changed = {file for file, *_ in guides.changes(text)}
    counts_changes = name in ("adding-a-driver", "adding-a-data-type")
    return changed if counts_changes else set(guides.made(text))


@pytest.mark.parametrize("name", FILES)
def test_the_files_are_counted(name):
    word, number = FILES[name]
    assert re.search(rf"^Files to \w+: \*\*{word}\*\*", guides.page(name), re.MULTILINE)
    assert len(files_of(name)) == number


@pytest.fixture(scope="module", params=FOLLOWED)
def followed(request, tmp_path_factory):
    require_vulkan()
    text = guides.page(request.param)
    return request.param, text, guides.follow(text, tmp_path_factory.mktemp("guide"))


def expected(name: str) -> str:
    """Output of the page's programs."""
    return {
        "adding-a-pass": "input %x: float32[2]\n%0: float32[2] = relu(input=%x)\noutput y = %0\n",
        "adding-a-kernel": "".join(
            f"{kernel}\n[[1.0, 0.0, 3.0], [0.0, 5.0, 0.0]]\n"
            for kernel in ("checkerboard", "numpy")
        ),
        "adding-a-driver": "[0.0, 2.0, 0.0, 4.0]\nTrue\n",
        "adding-a-data-type": "".join(
            f"[2, 14464, 65534] [2, 14464, 65534] {{'{device}'}}\n" for device in ("vulkan", "cpu")
        ),
    }[name]


def test_the_programs_of_a_guide_run(followed):
    name, text, folder = followed
    before = "".join(guides.made(text).values()) if name == "adding-a-pass" else ""
    code = before + "\n".join(guides.programs(text))
    printed = guides.run(folder, code)
    assert printed.rstrip() == expected(name).rstrip()


def test_the_files_pass_the_linter(followed):
    _, text, folder = followed
    files = [name for name in guides.made(text) if name.endswith(".py")]
    done = subprocess.run(
        [sys.executable, "-m", "ruff", "check", "webnn_vk/support/settings.py", *files],
        cwd=folder, capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout


def test_the_pass_runs_in_a_build(tmp_path):
    text = guides.page("adding-a-pass")
    folder = guides.follow(text, tmp_path)
    printed = guides.run(folder, """
import webnn_vk
context = webnn_vk.ml.create_context(driver="null").result()
builder = webnn_vk.MLGraphBuilder(context)
x = builder.input("x", {"data_type": "float32", "shape": [2]})
graph = builder.build({"y": builder.relu(builder.neg(builder.neg(x)))}).result()
print([step.operators for step in graph.report().steps])
""")
    assert "neg" not in printed and "relu" in printed

"""Pages name files and folders that exist."""

import re

import pytest

from tests.support.paths import ROOT

PAGES = sorted((ROOT / "docs").glob("*.md")) + [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")
]
#: Paths start at the root of the clone, in the package, in its compiler, in tests, or in shaders.
STARTS = ("", "webnn_vk", "webnn_vk/compiler", "tests", "shaders")
#: What a reader creates, or what a run makes.
MADE = {
    "webnn_vk/compiler/ops/mish.py", "dist/", "folder/", "build/", "docs/NAME.md",
}
NAMED = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.[\w.]+)?|(?:[\w-]+/)+[\w-]+)(?:::\w+)?`")
IN_TABLE = {"application/json"}


def named(text: str) -> list[str]:
    """The paths in a page's text, without its blocks of code."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return NAMED.findall(text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_paths_exist(page):
    missing = [
        path for path in named(page.read_text(encoding="utf-8"))
        if path not in MADE and not any((ROOT / start / path).exists() for start in STARTS)
    ]
    assert missing == []


def test_old_paths_are_found():
    text = "`graph/emit.py` `compiler/ir/emit.py`\n```sh\nls `a/b.py`\n```\n"
    first, second = named(text)
    assert not any((ROOT / start / first).exists() for start in STARTS)
    assert (ROOT / "webnn_vk" / second).exists()

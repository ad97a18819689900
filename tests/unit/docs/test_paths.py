"""Pages name files and folders that exist."""

import re

import pytest

from tests.support.paths import ROOT
from tests.system.docs import guides

PAGES = sorted((ROOT / "docs").glob("*.md")) + [
    ROOT / name for name in ("README.md", "CONTRIBUTING.md", "tests/README.md")
]
#: Paths start at the root of the clone, in the package, in its compiler, in tests, or in shaders.
STARTS = ("", "webnn_vk", "webnn_vk/compiler", "tests", "shaders")
#: Paths that a reader creates, or that a run makes; besides the files that guides show.
MADE = {"webnn_vk/compiler/ops/mish.py", "dist/", "folder/"}
NAMED = re.compile(r"`((?:[\w.-]+/)+(?:[\w.-]+\.[\w.]+)?|(?:[\w-]+/)+[\w-]+)(?:::\w+)?`")


def named(text: str) -> list[str]:
    """The paths in a page's text, without its code blocks."""
    text = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    return NAMED.findall(text)


def exists(path: str) -> bool:
    """Whether there is such a file, folder, or Python module named without its suffix."""
    return any(
        (ROOT / start / name).exists() for start in STARTS for name in (path, f"{path}.py")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_paths_exist(page):
    text = page.read_text(encoding="utf-8")
    made = MADE | set(guides.made(text))
    assert [path for path in named(text) if path not in made and not exists(path)] == []


def test_old_paths_are_found():
    text = "`graph/emit.py` `compiler/ir/emit.py`\n```sh\nls `a/b.py`\n```\n"
    first, second = named(text)
    assert not exists(first) and exists(second)

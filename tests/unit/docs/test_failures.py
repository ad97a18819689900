"""docs/failures.md promises nothing without a test: every test that it names exists."""

import ast
import re

import pytest

from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "failures.md").read_text(encoding="utf-8")
# Text in a comment is still to be completed.
SHOWN = re.sub(r"<!--.*?-->", "", PAGE, flags=re.DOTALL)
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", SHOWN)))
ROWS = [row for row in PAGE.splitlines() if row.startswith("| ") and not row.startswith("| ---")]


@pytest.mark.parametrize(("path", "name"), NAMED)
def test_it_is_there(path, name):
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    assert not name or name in functions, f"{path} has no {name}"


def test_every_line_names_a_test():
    assert len(NAMED) > 20
    for row in ROWS:
        failure, outcome, shown = row.strip("| ").split(" | ")
        assert failure and outcome
        assert shown == "shown by" or re.search(r"`tests/[\w/]+\.py", shown), row

"""What a test draws depends on its name alone, never on the tests that ran before it."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator

import numpy as np
import pytest

from tests.support import selection
from tests.support.numbers import generator
from tests.support.paths import ROOT

#: What makes a generator.
MAKERS = {"default_rng", "RandomState", "Random", "Generator", "chance", "generator"}
#: The names of `random` and of `np.random` that draw nothing from a shared state.
OWN = {"Random", "default_rng", "Generator", "BitGenerator", "SeedSequence"}
CACHES = {"cache", "lru_cache", "cached_property"}


class _Scan(ast.NodeVisitor):
    """Finds generators that outlive a call of a test, and draws from the state of a module."""

    def __init__(self) -> None:
        self.found: list[tuple[int, str]] = []
        self._inside: list[ast.AST] = []

    def visit(self, node: ast.AST) -> None:
        self._inside.append(node)
        super().visit(node)
        self._inside.pop()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if _kept(node):
            made = {
                name.id
                for each in ast.walk(node) if isinstance(each, ast.Assign) and _makes(each.value)
                for name in each.targets if isinstance(name, ast.Name)
            }
            for each in ast.walk(node):
                value = getattr(each, "value", None)
                if isinstance(each, ast.Return | ast.Yield) and value is not None and (
                    _makes(value) or isinstance(value, ast.Name) and value.id in made
                ):
                    self.found.append((each.lineno, f"{node.name} hands out one generator"))
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if _makes(node) and self._at_import():
            around = self._inside[-2]
            # default_rng(0).normal(…) is drawn at once, and nothing else uses its generator.
            if not (isinstance(around, ast.Attribute) and isinstance(self._inside[-3], ast.Call)):
                self.found.append((node.lineno, "a generator that all tests of the file share"))
        self.generic_visit(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        module = node.value
        of_numpy = isinstance(module, ast.Attribute) and module.attr == "random" and (
            isinstance(module.value, ast.Name) and module.value.id in ("np", "numpy")
        )
        if of_numpy and node.attr not in OWN:
            self.found.append((node.lineno, f"{node.attr} draws from NumPy's one generator"))
        self.generic_visit(node)

    def _at_import(self) -> bool:
        """Whether this runs when the file is imported: outside functions, or in their defaults."""
        for outer, inner in zip(self._inside, self._inside[1:], strict=False):
            if isinstance(outer, ast.FunctionDef | ast.AsyncFunctionDef) and inner in outer.body:
                return False
            if isinstance(outer, ast.Lambda) and inner is outer.body:
                return False
        return True


def _makes(node: ast.AST) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = getattr(node.func, "attr", getattr(node.func, "id", ""))
    return name in MAKERS


def _kept(node: ast.FunctionDef) -> bool:
    """Whether several tests get the same result: a cached function, a fixture of a wide scope."""
    texts = [ast.unparse(each) for each in node.decorator_list]
    return any(
        text.split("(")[0].split(".")[-1] in CACHES or "scope=" in text for text in texts
    )


def scan(text: str) -> Iterator[tuple[int, str]]:
    """Lines of a source that share random numbers among tests, and why they do."""
    tree = ast.parse(text)
    scanner = _Scan()
    scanner.visit(tree)
    yield from scanner.found
    own = {
        alias.asname or alias.name
        for node in ast.walk(tree) if isinstance(node, ast.Import)
        for alias in node.names if alias.name == "random"
    }
    # A name that some function binds, `random = default_rng(0)`, is no module there.
    bound = {node.id for node in ast.walk(tree)
             if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            if node.value.id in own - bound and node.attr not in OWN:
                if node.attr != "SystemRandom":
                    yield node.lineno, f"random.{node.attr} draws from the process's one generator"
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random"):
            for alias in node.names:
                if alias.name not in OWN:
                    yield node.lineno, f"{alias.name} of {node.module}"


@pytest.mark.full
def test_no_test_draws_from_a_generator_of_others() -> None:
    # Programs that explore may draw their seed.
    paths = [p for p in sorted((ROOT / "tests").rglob("*.py")) if p.name != "__main__.py"]
    wrong = [
        f"{path.relative_to(ROOT)}:{line}: {why}"
        for path in paths for line, why in scan(path.read_text(encoding="utf-8"))
    ]
    assert len(paths) > 500 and wrong == []


@pytest.mark.parametrize(("text", "shared"), [
    ("RNG = np.random.default_rng(0)", True),
    ("class T:\n    rng = default_rng(0)", True),
    ("draw = np.random.default_rng(0).normal", True),
    ("def f(rng=np.random.default_rng(0)): pass", True),
    ("pick = random.Random(3).choice", True),
    ("@functools.cache\ndef f():\n    return default_rng(0)", True),
    ("@pytest.fixture(scope='module')\ndef f():\n    rng = default_rng(0)\n    yield rng", True),
    ("def f():\n    return np.random.normal(3)", True),
    ("import random\ndef f():\n    return random.choice([1])", True),
    ("from random import shuffle", True),
    ("X = np.random.default_rng(0).normal(size=3)", False),
    ("X = np.random.default_rng(0).normal(size=3).astype(int)", False),
    ("def f():\n    rng = np.random.default_rng(0)\n    return rng.normal()", False),
    ("F = lambda: default_rng(0)", False),
    ("@pytest.fixture(scope='module')\ndef f():\n    return default_rng(0).normal()", False),
    ("import random\ndef f():\n    return random.Random(3).choice([1])", False),
    ("def f(rng):\n    return rng.normal()", False),
])
def test_what_is_shared(text: str, shared: bool) -> None:
    assert bool([*scan(text)]) == shared


def test_the_text_seeds_a_generator_in_every_process() -> None:
    drawn = [int(generator(name).integers(2**62)) for name in ("a", "a", "b")]
    assert drawn[0] == drawn[1] != drawn[2]
    code = ("from tests.support.numbers import generator; "
            "print(int(generator('a').integers(2**62)))")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=60,
    )
    assert done.stdout.split() == [str(drawn[0])], done.stderr


@pytest.mark.parametrize("case", ["one", "another"])
def test_the_fixture_is_of_the_test_and_of_the_runs_seed(
    rng: np.random.Generator, request: pytest.FixtureRequest, case: str
) -> None:
    same = generator(f"{selection.seed()} {request.node.nodeid}")
    assert case in request.node.nodeid
    assert rng.integers(2**62) == same.integers(2**62)

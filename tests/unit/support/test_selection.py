"""The selection of tests: use of a device is detected, and samples depend on the seed only."""

import os
import subprocess
import sys
from types import SimpleNamespace

import hypothesis
import pytest

from tests.support import selection
from tests.support.paths import ROOT


class Item:
    def __init__(self, nodeid, markers=(), fixtures=(), **params):
        self.nodeid, self.fixturenames = nodeid, fixtures
        self.callspec = SimpleNamespace(params=params)
        self._markers = {marker.name: marker for marker in markers}

    def get_closest_marker(self, name):
        return self._markers.get(name)


def config(explore=False, keyword="", args=("tests",)):
    return SimpleNamespace(option=SimpleNamespace(explore=explore, keyword=keyword), args=list(args))


def names(items):
    return {item.nodeid for item in items}


@pytest.fixture
def items():
    share = pytest.mark.sample(0.25).mark
    cases = [Item(f"tests/conformance/x.py::test_x[{i}]", [share]) for i in range(40)]
    return [*cases, Item("tests/unit/y.py::test_y"),
            Item("tests/unit/z.py::test_z", [pytest.mark.explore.mark])]


@pytest.mark.parametrize(("item", "expected"), [
    (Item("tests/unit/test_a.py::test_a"), False),
    (Item("tests/unit/test_a.py::test_a", fixtures=("vulkan_context", "vulkan")), True),
    (Item("tests/device/test_a.py::test_a"), True),
    (Item("tests/device/test_a.py::test_a", context="cpu"), False),
    (Item("tests/conformance/test_a.py::test_a", device="vulkan"), True),
    (Item("tests/conformance/test_a.py::test_a", device="cpu", size=3), False),
    (Item("tests/system/test_a.py::test_a", device="cpu"), True),
])
def test_what_needs_a_device(item, expected):
    assert selection.needs_device(item) == expected


DRAWN = """
from hypothesis import given, settings, strategies

def test_drawn():
    seen = []

    @settings(max_examples=20)
    @given(strategies.integers())
    def draw(number):
        seen.append(number)

    draw()
    print("\\ndrawn", seen)
"""


def test_random_examples_are_of_the_seed(tmp_path):
    """In CI, where hypothesis alone would always draw the same; the seed is printed."""
    test = tmp_path / "test_drawn.py"
    test.write_text(DRAWN)
    drawn = []
    for seed in ("1", "1", "2"):
        environment = {k: v for k, v in os.environ.items() if k != "HYPOTHESIS_PROFILE"}
        environment |= {selection.SEED: seed, "CI": "1"}
        command = [sys.executable, "-m", "pytest", "-s", "-p", "no:cacheprovider", "-p",
                   "tests.conftest", "-c", str(ROOT / "pyproject.toml"), str(test)]
        ran = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=120
        )
        assert f"random seed: {selection.SEED}={seed}" in ran.stdout, ran.stdout + ran.stderr
        (line,) = (line for line in ran.stdout.splitlines() if line.startswith("drawn ["))
        drawn.append(line)
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_sample_is_of_its_seed(items, monkeypatch):
    drawn = []
    for value in ("1", "1", "2"):
        monkeypatch.setenv(selection.SEED, value)
        skipped = selection.left_out(config(), items)
        assert selection.sampled(items, skipped) == (10, 40)
        assert "tests/unit/z.py::test_z" in names(skipped)
        assert "tests/unit/y.py::test_y" not in names(skipped)
        drawn.append(names(skipped))
    assert drawn[0] == drawn[1] != drawn[2]


def test_a_function_of_one_case_runs_with_some_seeds(monkeypatch):
    runs = 0
    for seed in range(200):
        monkeypatch.setenv(selection.SEED, str(seed))
        items = [Item("tests/system/x.py::test_x", [pytest.mark.sample(0.25).mark])]
        runs += not selection.left_out(config(), items)
    assert 30 < runs < 70


def test_the_seed_is_fixed(monkeypatch):
    """On every day and for every commit; the environment may set another."""
    monkeypatch.delenv(selection.SEED, raising=False)
    assert selection.seed() == selection.FIXED == os.environ[selection.SEED]
    drawn = {selection.chance("a").random(), selection.chance("b").random()}
    monkeypatch.setenv(selection.SEED, "another")
    assert selection.seed() == "another"
    assert len(drawn | {selection.chance("a").random()}) == 3


def test_the_seed_of_random_examples(request, monkeypatch):
    """They are not derandomized, which would be hypothesis' default in CI."""
    assert not hypothesis.settings.default.derandomize
    given = []
    for seed in ("1", "1", "2"):
        monkeypatch.setenv(selection.SEED, seed)
        made = SimpleNamespace(option=SimpleNamespace(hypothesis_seed=None))
        selection.seed_hypothesis(made)
        given.append(made.option.hypothesis_seed)
    assert given[0] == given[1] != given[2]
    asked = SimpleNamespace(option=SimpleNamespace(hypothesis_seed="7"))
    selection.seed_hypothesis(asked)
    assert asked.option.hypothesis_seed == "7"
    assert hypothesis.core.global_force_seed is not None
    assert str(hypothesis.core.global_force_seed) == str(request.config.option.hypothesis_seed)


def test_everything_runs_on_demand(items):
    assert not selection.left_out(config(explore=True), items)
    for asked in (config(keyword="x"), config(args=["tests/conformance/x.py::test_x[3]"])):
        assert names(selection.left_out(asked, items)) == {"tests/unit/z.py::test_z"}

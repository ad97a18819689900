"""The selection of tests: use of a device is detected, the fixed suite always draws the same, and
exploring draws from its seed."""

import os
import subprocess
import sys
from types import SimpleNamespace

import pytest

from tests.support import selection
from tests.support.paths import ROOT


class Item:
    def __init__(self, nodeid, markers=(), fixtures=(), module=None, **params):
        self.nodeid, self.fixturenames, self.module = nodeid, fixtures, module
        self.callspec = SimpleNamespace(params=params)
        self._markers = {marker.name: marker for marker in markers}

    def get_closest_marker(self, name):
        return self._markers.get(name)

    def add_marker(self, name):
        self._markers[name] = getattr(pytest.mark, name).mark


def config(explore=False, keyword="", args=("tests",), seed=None, minutes=None):
    options = SimpleNamespace(explore=explore, keyword=keyword, seed=seed, minutes=minutes)
    return SimpleNamespace(option=options, args=list(args))


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


def test_a_sample_is_of_its_seed(items, monkeypatch):
    drawn = []
    for value in ("1", "1", "2"):
        monkeypatch.setenv(selection.SEED, value)
        skipped = selection.left_out(config(), items)
        assert {*selection.counted(items, skipped).values()} == {42, 1, 30}
        assert "tests/unit/z.py::test_z" in names(skipped)
        assert "tests/unit/y.py::test_y" not in names(skipped)
        drawn.append(names(skipped))
    assert drawn[0] == drawn[1] != drawn[2]


def test_the_counts(items, monkeypatch):
    skipped = selection.left_out(config(), items)
    assert selection.counted(items, skipped) == {
        "collected": 42, "to explore": 1, "not drawn": 30,
    }
    monkeypatch.setenv(selection.SEED, "7")
    skipped = selection.left_out(config(explore=True), items)
    assert selection.counted(items, skipped) == {"collected": 42, "to explore": 0, "fixed": 1}


def test_a_function_of_one_case_always_runs():
    items = [Item("tests/system/x.py::test_x", [pytest.mark.sample(0.01).mark])]
    assert not selection.left_out(config(), items)


def test_the_seed(monkeypatch):
    """Whatever the environment holds, it is fixed; exploring takes one that is asked for or draws
    it, for itself and for the processes that it starts."""
    monkeypatch.setenv(selection.SEED, "another")
    selection.configure(config())
    assert selection.seed() == selection.FIXED == os.environ[selection.SEED]
    fixed = {selection.chance("a").random(), selection.chance("b").random()}
    selection.configure(config(explore=True, seed="7"))
    assert selection.seed() == "7"
    assert len(fixed | {selection.chance("a").random()}) == 3
    drawn = set()
    for _ in range(3):
        selection.configure(config(explore=True))
        drawn.add(selection.seed())
    assert len(drawn) > 1
    with pytest.raises(pytest.UsageError, match="--seed needs --explore"):
        selection.configure(config(seed="7"))
    for wrong in (config(minutes=5), config(explore=True, minutes=0)):
        with pytest.raises(pytest.UsageError, match="--minutes needs --explore, and a number"):
            selection.configure(wrong)


def test_named_tests_are_not_sampled(items):
    for asked in (config(keyword="x"), config(args=["tests/conformance/x.py::test_x[3]"])):
        assert names(selection.left_out(asked, items)) == {"tests/unit/z.py::test_z"}


def test_what_is_explored(items):
    """What draws: a marker, the fixture `rng`, or the module's use of hypothesis or `chance`."""
    import hypothesis

    drawing = [
        Item("tests/a.py::test_a", fixtures=("rng",)),
        Item("tests/b.py::test_b", module=SimpleNamespace(given=hypothesis.given)),
        Item("tests/c.py::test_c", module=SimpleNamespace(hypothesis=hypothesis)),
        Item("tests/d.py::test_d", module=SimpleNamespace(chance=selection.chance)),
        Item("tests/e.py::test_e", module=SimpleNamespace(selection=selection)),
    ]
    other = Item("tests/f.py::test_f", module=SimpleNamespace(os=os, text="a", test_f=config))
    skipped = selection.left_out(config(explore=True), [*items, *drawing, other])
    assert names(skipped) == {"tests/unit/y.py::test_y", "tests/f.py::test_f"}


def test_what_waits_has_time():
    """A timeout of its own comes first."""
    for nodeid, own, expected in (
        (f"{selection.LATE[0]}test_a.py::test_b", None, selection.PATIENCE),
        (f"{selection.LATE[0]}test_a.py::test_b", 60, 60),
        ("tests/unit/test_a.py::test_b", None, None),
    ):
        marks = [] if own is None else [pytest.mark.timeout(own).mark]
        item = SimpleNamespace(nodeid=nodeid, add_marker=lambda mark, m=marks: m.append(mark.mark))
        selection.give_time([item])
        assert (marks[0].args[0] if marks else None) == expected


def test_files_are_shuffled_by_the_seed(monkeypatch):
    """A file stays together."""
    orders = []
    for value in ("1", "1", "2"):
        monkeypatch.setenv(selection.SEED, value)
        items = [Item(f"tests/{i // 4}.py::test[{i}]") for i in range(80)]
        selection.shuffle(items)
        files = [item.nodeid.split("::")[0] for item in items]
        assert len([1 for a, b in zip(files, files[1:], strict=False) if a != b]) == 19
        orders.append(files)
    assert orders[0] == orders[1] != orders[2]


def test_the_second_part(items):
    beyond = [Item(selection.FULL[0] + "test_x.py::test_x"),
              Item("tests/device/test_y.py::test_y", driver="kompute")]
    first = Item(selection.FIRST[0] + "::test_z")
    selection.mark_full([*items, *beyond, first])
    assert all(item.get_closest_marker("full") for item in beyond)
    assert not any(item.get_closest_marker("full") for item in [*items, first])
    for path in (*selection.FULL, *selection.FIRST):
        assert (ROOT / path).exists(), path
    assert all(path.startswith(selection.FULL) for path in selection.FIRST)


WITHOUT_LOADER = """
import sys
from webnn_vk.driver.vulkan.errors import VulkanUnavailable

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "webnn_vk.driver.vulkan.binding":
            raise VulkanUnavailable("hidden by a test")

sys.meta_path.insert(0, Finder())
"""


@pytest.mark.full
def test_all_is_collected_without_a_loader(tmp_path):
    """Files that need it are left out by name; no other file's import needs it, or a device."""
    (tmp_path / "without_loader.py").write_text(WITHOUT_LOADER)
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-p", "without_loader",
         "-p", "no:cacheprovider"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": str(tmp_path)}, capture_output=True, text=True,
        timeout=280,
    )
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr
    left = [line for line in ran.stdout.splitlines() if line.startswith("NOT COLLECTED: ")]
    assert len(left) == 4 and all("hidden by a test" in line for line in left)


DRAWN = """
import os
import pytest
from hypothesis import given, settings, strategies

@pytest.mark.parametrize("case", ["a", "b"])
def test_drawn(case, rng):
    if "WEBNN_VK_TEST_IMPORTS" in os.environ:
        import tests.support.cases.random_chains  # more constants in sources
    seen = []

    @settings(max_examples=200)
    @given(strategies.integers())
    def draw(number):
        seen.append(number)

    draw()
    print("\\ndrawn", case, seen, rng.random())
"""


def drawn(folder, *options, **environment):
    """What the two tests draw, by their parameter."""
    test = folder / "test_drawn.py"
    test.write_text(DRAWN)
    command = [sys.executable, "-m", "pytest", "-s", "-n", "0", "-p", "no:cacheprovider", "-p",
               "tests.conftest", "-c", str(ROOT / "pyproject.toml"), f"--rootdir={folder}"]
    names = [f"{test}::test_drawn[{case}]" for case in ("a", "b")]
    environment = {**os.environ, "CI": "1", **environment}
    environment.pop("HYPOTHESIS_PROFILE", None)
    ran = subprocess.run(
        [*command, *options, *(names[::-1] if "backwards" in environment else names)], cwd=ROOT,
        env=environment, capture_output=True, text=True, timeout=250,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    lines = [line.split(maxsplit=2) for line in ran.stdout.splitlines() if line[:6] == "drawn "]
    return {case: values for _, case, values in lines}


def test_a_test_draws_by_its_name(tmp_path):
    """Not by the order, the modules that are imported, or an environment; exploring draws others,
    and the same again from the same seed."""
    once = drawn(tmp_path)
    assert once["a"] != once["b"]
    assert once == drawn(
        tmp_path, backwards="1", WEBNN_VK_TEST_IMPORTS="1", **{selection.SEED: "another"}
    )
    explored = drawn(tmp_path, "--explore", "--seed", "1")
    assert not set(explored.values()) & set(once.values())
    assert explored == drawn(tmp_path, "--explore", "--seed", "1", backwards="1")

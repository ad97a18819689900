"""The recorded tests pass, but for what only JavaScript can express."""

import pytest

from tests.drivers import require_vulkan

from . import replay, suite
from .conformance import Tally
from .test_conformance import needs_suite

#: Why an expectation may be left out; nothing else is accepted.
REASONS = (
    "a BigInt where a float is asked", "a detached ArrayBuffer", "an empty recording",
    "a SharedArrayBuffer",
)
FOLDERS = ("validation", "behaviour_traces")


@needs_suite
@pytest.mark.parametrize("device", ["cpu", "vulkan"])
@pytest.mark.parametrize(
    ("folder", "file"), [(folder, file) for folder in FOLDERS for file in suite.files(folder)]
)
def test_recordings(folder, file, device):
    if device == "vulkan":
        require_vulkan()
    tally = Tally()
    replay.run_file(folder, file, device, tally)
    assert tally.ok, "\n".join(tally.failures)
    assert tally.passed + tally.skipped


@needs_suite
@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_left_out_is_named_with_its_reason_and_exists(folder):
    names = set()
    for file in suite.files(folder):
        for test in suite.load(folder, file)["tests"]:
            names.add(f"{file}: {test['name']}")
    for name, reason in suite.skipped()[folder].items():
        assert name in names
        assert reason.startswith(REASONS)


@needs_suite
def test_a_broken_expectation_is_seen(monkeypatch):
    steps = [
        {"call": "navigator.ml.createContext", "args": [{}], "out": "c", "async": True},
        {"new": "MLGraphBuilder", "args": [{"$ref": "c"}], "out": "b"},
        {"on": "b", "call": "input", "args": ["x", {"dataType": "float32", "shape": [2]}],
         "out": "x"},
        {"expect": "x.shape", "equals": [3]},
    ]
    monkeypatch.setattr(suite, "load", lambda *_: {"tests": [{"name": "t", "steps": steps}]})
    tally = Tally()
    replay.run_file("validation", "made-up", "cpu", tally)
    assert (tally.failed, tally.passed) == (1, 0)

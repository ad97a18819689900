"""The recorded tests pass, except what only JavaScript can express; steps that the recordings lack
are in `written`."""

import pytest

from tests.conformance.wpt import replay, suite, written, written_interop
from tests.conformance.wpt.conformance import Tally
from tests.conformance.wpt.test_conformance import needs_suite
from tests.support.drivers import require_vulkan

#: Reasons why an expectation may be left out; no other is accepted.
REASONS = (
    "a BigInt where a float is asked", "a detached ArrayBuffer", "a SharedArrayBuffer",
    "MLGraph.devices: an extension",
)
FOLDERS = ("validation", "behaviour_traces")


@pytest.mark.sample(0.5)
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


#: Keys of steps that can fail a test by a comparison.
EXPECTATIONS = {"throws", "rejects", "expect", "expectData", "expectBuffer", "types", "same"}


def completed():
    """(file, name, recorded steps, all steps) of each test."""
    for folder in FOLDERS:
        for file in suite.files(folder):
            for test in [*suite.load(folder, file)["tests"], *written.added(folder, file)]:
                if test["name"] != "$setup":
                    steps = written.completed(folder, file, test)
                    yield file, test["name"], test["steps"], steps


@needs_suite
def test_no_test_is_without_an_expectation():
    without = {
        f"{file}: {name}" for file, name, _, steps in completed()
        if not any(EXPECTATIONS & step.keys() for step in steps)
    }
    # The whole test is about a detached buffer.
    assert without == {"byob_readtensor: readTensor() with a detached ArrayBuffer should reject"}


@needs_suite
def test_no_file_is_without_a_test():
    assert {file for file, *_ in completed()} == {f for d in FOLDERS for f in suite.files(d)}


@needs_suite
def test_every_test_that_is_written_completes_a_recording():
    changed = {
        f"{file}: {name}" for file, name, recorded, steps in completed() if steps != recorded
    }
    interop = {name.split(" / ")[1] for name in changed if "interop" in name}
    assert interop == set(written_interop.ABOUT)
    assert {key.partition("/")[2] for key in written._CHANGES} <= changed
    assert sum("interop" in name for name in changed) == 51


def altered(steps):
    """The steps with the last expected number changed; None if there is none."""
    for at in reversed(range(len(steps))):
        values = steps[at].get("equals")
        if steps[at].keys() & {"expectData", "expectBuffer"} and isinstance(values, list):
            return [*steps[:at], {**steps[at], "equals": [*values[:-1], values[-1] + 1]},
                    *steps[at + 1 :]]
    return None


@needs_suite
@pytest.mark.device
@pytest.mark.parametrize("file", ["tensor", "parallel-dispatch"])
def test_a_wrong_number_fails_what_is_written(monkeypatch, vulkan, file):
    right, wrong = written.completed, []

    def completed_wrongly(folder, file, test):
        steps = right(folder, file, test)
        other = altered(steps) if steps != test["steps"] else None
        if other:
            wrong.append(test["name"])
        return other or steps

    monkeypatch.setattr(written, "completed", completed_wrongly)
    tally = Tally()
    replay.run_file("behaviour_traces", file, "vulkan", tally)
    assert tally.failed == len(wrong) == len(tally.failures) > 7
    for name, failure in zip(wrong, tally.failures, strict=True):
        assert failure.startswith(f"{file}: {name}: Mismatch"), failure


CONTEXT = {"call": "navigator.ml.createContext", "args": [{}], "out": "c", "async": True}
BUILDER = {"new": "MLGraphBuilder", "args": [{"$ref": "c"}], "out": "b"}
FLAGS = {"dataType": "int32", "shape": [2], "readable": True, "writable": True}
BUFFER = {"$arraybuffer": 8, "data": "zeros"}


def on(target, call, *args, **more):
    return {"on": target, "call": call, "args": list(args), **more}


def replayed(monkeypatch, *steps, listed=False):
    """The tally of one synthetic recording."""
    monkeypatch.setattr(suite, "load", lambda *_: {"tests": [{"name": "t", "steps": steps}]})
    monkeypatch.setattr(suite, "skipped", lambda: {"validation": {"f: t": ""} if listed else {}})
    tally = Tally()
    replay.run_file("validation", "f", "cpu", tally)
    return tally


def counts(tally):
    return tally.passed, tally.failed, tally.skipped, tally.in_part


def test_a_broken_expectation_is_seen(monkeypatch):
    described = on("b", "input", "x", {"dataType": "float32", "shape": [2]}, out="x")
    for listed in (False, True):
        for shape, result in (([2], (not listed, listed, 0, 0)), ([3], (0, 1, 0, 0))):
            tally = replayed(
                monkeypatch, CONTEXT, BUILDER, described,
                {"expect": "x.shape", "equals": shape}, listed=listed,
            )
            assert counts(tally) == result


def test_a_test_that_checks_nothing_fails(monkeypatch):
    tally = replayed(monkeypatch, CONTEXT, BUILDER)
    assert counts(tally) == (0, 1, 0, 0) and "it checks nothing" in tally.failures[0]
    tally = replayed(monkeypatch)
    assert counts(tally) == (0, 1, 0, 0)


def tensors(*names):
    return [on("c", "createTensor", FLAGS, out=name, **{"async": True}) for name in names]


def read(tensor, out):
    return on("c", "readTensor", {"$ref": tensor}, out=out, **{"async": True})


def holds(data, *values):
    return {"expectData": data, "as": "Int32Array", "length": 2, "equals": list(values)}


BIGINT = {"throws": "TypeError", "calls": [on("b", "constant", "float32", {"$bigint": "1"})]}
DETACHED = [
    on("c", "readTensor", {"$ref": "t"}, BUFFER, into="buf", rejects="TypeError",
       **{"async": True}),
    {"detach": "buf"},
]
SHARED = [
    *tensors("s"), on("c", "writeTensor", {"$ref": "s"}, {"$sharedarraybuffer": 8}),
    read("s", "unknown"), holds("unknown", 7, 7),
]


@pytest.mark.parametrize("excused", [[BIGINT], DETACHED, SHARED, [{"throws": "TypeError",
                                                                  "calls": []}]])
def test_what_follows_an_excused_step_is_checked(monkeypatch, excused):
    steps = [CONTEXT, BUILDER, *tensors("t"), *excused, read("t", "d")]
    good, bad = holds("d", 0, 0), holds("d", 0, 1)
    assert counts(replayed(monkeypatch, *steps, listed=True)) == (0, 0, 1, 0)
    assert counts(replayed(monkeypatch, *steps, good, listed=True)) == (0, 0, 1, 1)
    assert counts(replayed(monkeypatch, *steps, bad, listed=True)) == (0, 1, 0, 0)
    unlisted = replayed(monkeypatch, *steps, good)
    assert not unlisted.ok and "not listed" in unlisted.failures[0]


def test_only_what_javascript_alone_has_is_excused(monkeypatch):
    number = {"throws": "TypeError", "calls": [on("b", "constant", "float32", 1)]}
    other = {"throws": "TypeError", "calls": [on("b", "nothing", {"$bigint": "1"})]}
    detached_other = [*DETACHED[:1], {"detach": "another"}]
    for steps in ([number], [other], detached_other):
        tally = replayed(monkeypatch, CONTEXT, BUILDER, *tensors("t"), *steps, listed=True)
        assert counts(tally) == (0, 1, 0, 0)

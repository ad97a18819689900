"""ONNX's own backend suite: a sample on each device, and with `--long` all of it.

`python -m tests.support.generate onnx` writes what is out, and why, into docs/onnx.md.
"""

import pytest

pytest.importorskip("onnx")

from tests.support.drivers import require_vulkan
from tests.support.onnx_cases import SUITES, cases, outside, run
from tests.support.onnx_table import FAILING, FAILING_ON_ENGINE, PASSING_ON_ENGINE

#: Every so many cases of a suite are in the sample: ten seconds or so each. "engine" is the CPU
#: device with ONNX Runtime.
EVERY = {"cpu": 8, "engine": 8, "vulkan": 40}


def within(suite):
    return [case for case in cases(suite) if outside(case) is None]


def failures(device, chosen):
    """Cases whose outcome is not the expected one."""
    expected = FAILING
    if device == "engine":
        expected = FAILING | FAILING_ON_ENGINE
        expected = {case: why for case, why in expected.items() if case not in PASSING_ON_ENGINE}
    wrong = {}
    for case in chosen:
        outcome = run(case)
        if (outcome.kind == "passed") == ((case.suite, case.name) in expected):
            wrong[case.name] = f"{outcome.kind} {outcome.reason}"[:500]
    return wrong


def choose(monkeypatch, device):
    if device == "vulkan":
        require_vulkan()
    if device == "engine":
        pytest.importorskip("onnxruntime")
        monkeypatch.setenv("WEBNN_VK_CPU_ENGINE", "onnxruntime")
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu" if device == "engine" else device)


@pytest.mark.parametrize("device", EVERY)
def test_a_sample(device, monkeypatch):
    choose(monkeypatch, device)
    chosen = within("node")[:: EVERY[device]]
    chosen += within("pytorch-converted")[:: EVERY[device]]
    assert len(chosen) > 30
    assert failures(device, chosen) == {}


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("device", EVERY)
def test_all(device, suite, monkeypatch):
    choose(monkeypatch, device)
    assert failures(device, within(suite)) == {}


def test_enough_of_what_webnn_can_express_passes():
    chosen = within("node")
    failing = [case for case in chosen if ("node", case.name) in FAILING]
    assert len(failing) / len(chosen) <= 0.03
    assert len(chosen) > 0.7 * len(cases("node"))


def test_no_case_is_beyond_webnn_by_its_name():
    """The same model under another name gets the same reason."""
    from dataclasses import replace

    for case in cases("node")[::50]:
        assert outside(replace(case, name="test_other")) == outside(case)


def test_failing_cases_exist():
    names = {(case.suite, case.name) for suite in SUITES for case in cases(suite)}
    assert set(FAILING) | set(FAILING_ON_ENGINE) <= names
    assert PASSING_ON_ENGINE <= set(FAILING)

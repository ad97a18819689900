"""ONNX's own backend suite: a sample on each device, and with `--long` all of it.

`python -m tests.support.generate onnx` writes what is out, and why, into docs/onnx.md.
"""

import numpy as np
import pytest

pytest.importorskip("onnx")

from tests.support.drivers import require_vulkan
from tests.support.onnx_cases import SUITES, cases, exact, outside, run, run_onnxruntime
from tests.support.onnx_table import AS_ONNX_RUNTIME, FAILING, PASSING_ON_ENGINE
from webnn_vk import onnx_backend

#: Every so many cases of a suite are in the sample: ten seconds or so each. "engine" is the CPU
#: device with ONNX Runtime.
EVERY = {"cpu": 8, "engine": 8, "vulkan": 40}


def within(suite):
    return [case for case in cases(suite) if outside(case) is None]


def failures(device, chosen):
    """Cases whose outcome is not the expected one."""
    wrong = {}
    for case in chosen:
        key, outcome = (case.suite, case.name), run(case)
        passes = key not in FAILING
        if device == "engine" and key in AS_ONNX_RUNTIME:
            passes = run_onnxruntime(case).kind == "passed"
        elif device == "engine" and key in PASSING_ON_ENGINE:
            passes = True
        if (outcome.kind == "passed") != passes:
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
    assert set(FAILING) | set(AS_ONNX_RUNTIME) <= names
    assert PASSING_ON_ENGINE <= set(FAILING)


def test_expectations_that_are_not_exact(monkeypatch):
    """Ours are within the tolerance of what double precision gives."""
    choose(monkeypatch, "cpu")
    compared = []
    named = {case.name: case for case in cases("node")}
    for name, case in named.items():
        if not FAILING.get(("node", name), "").startswith("ours is within"):
            continue
        whole = named[name.removesuffix("_expanded")]
        for (inputs, _), (expected, true) in zip(case.data(), exact(whole), strict=True):
            results = onnx_backend.prepare(case.model).run(inputs)
            for got, want, right in zip(results, expected, true, strict=True):
                assert right.dtype == np.float64
                assert not np.array_equal(want, right.astype(want.dtype))
                np.testing.assert_allclose(got, right, case.rtol, case.atol)
            compared.append(name)
    assert len(compared) == 4

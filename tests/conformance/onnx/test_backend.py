"""ONNX's whole backend suite on the CPU device, and its cases by share on the others.

`python -m scripts.generate onnx` writes the excluded cases, and why, into docs/onnx.md.
"""

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("onnx")

from tests.support import onnx_exceptions
from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.onnx_cases import SUITES, cases, exact, outside, run, run_onnxruntime
from tests.support.onnx_exceptions import AS_ONNX_RUNTIME, EXCEPTIONS, failing
from tests.support.selection import chance
from tests.support.summary import LINE
from webnn_vk import onnx_backend

#: "engine" is the CPU device with ONNX Runtime.
DEVICES = ("cpu", "engine", "vulkan")
#: Minimum number of cases of a suite that WebNN has to pass: no case is left out unnoticed.
LEAST = {"node": 1300, "simple": 5, "pytorch-converted": 80, "pytorch-operator": 30, "light": 9}
#: 575 MB of weights, of layers that light_bvlc_alexnet has too.
LARGEST = "light_vgg19"


def within(suite):
    return [case for case in cases(suite) if outside(case) is None]


def failures(device, chosen):
    """Cases with an unexpected outcome, including listed exceptions that pass."""
    wrong = {}
    excepted = onnx_exceptions.failing(device)
    for case in chosen:
        key, outcome = (case.suite, case.name), run(case)
        passes = key not in excepted
        if device == "engine" and key in AS_ONNX_RUNTIME:
            passes = run_onnxruntime(case).kind == "passed"
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


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("suite", SUITES)
@pytest.mark.parametrize("device", DEVICES)
def test_every_case(device, suite, monkeypatch, record_property, request):
    """The CPU has all of them, for the importer, but for most of the functions' bodies, whose
    operators have cases of their own. The other devices have a twelfth, and the exceptions, as
    conformance/differential compares their operators. All run with --explore."""
    choose(monkeypatch, device)
    chosen = within(suite)
    assert len(chosen) >= LEAST[suite]
    if not request.config.option.explore:
        bodies = [case.name for case in chosen if "_expanded" in case.name]
        names = [case.name for case in chosen if "_expanded" not in case.name]
        if device == "cpu":
            names = [name for name in names if name != LARGEST]
            names += chance("bodies", suite).sample(bodies, len(bodies) // 4)
        else:
            names = chance("backend", suite).sample(names, len(names) // 12 + 1)
        listed = {*failing(device), *(AS_ONNX_RUNTIME if device == "engine" else ())}
        names = {*names, *(name for _, name in listed)}
        chosen = [case for case in chosen if case.name in names]
    assert failures(device, chosen) == {}
    excepted = sum(key[0] == suite for key in failing(device))
    record_property(
        LINE, f"ONNX {suite} on {device}: {len(chosen)} cases, {excepted} of them exceptions"
    )


def test_outcomes_that_are_not_expected_are_seen(monkeypatch):
    """A listed exception that passes, and a failure that is not listed."""
    choose(monkeypatch, "cpu")
    named = {case.name: case for case in cases("node")}
    (rounded,) = [group for group in EXCEPTIONS if "test_dft_inverse" in group.names]
    chosen = [named["test_abs"], named["test_dft_inverse"]]
    assert failures("cpu", chosen) == {}
    monkeypatch.setattr(onnx_exceptions, "EXCEPTIONS", [replace(rounded, names=("test_abs",))])
    wrong = failures("cpu", chosen)
    assert set(wrong) == {"test_abs", "test_dft_inverse"}
    assert wrong["test_abs"].startswith("passed") and wrong["test_dft_inverse"].startswith("wrong")


def test_enough_of_what_webnn_can_express_passes():
    chosen = within("node")
    for device in DEVICES:
        assert sum(suite == "node" for suite, _ in failing(device)) / len(chosen) <= 0.03
    assert len(chosen) > 0.7 * len(cases("node"))


def test_no_case_is_beyond_webnn_by_its_name():
    """The same model under another name gets the same reason."""
    for case in cases("node"):
        assert outside(replace(case, name="test_other")) == outside(case)


def test_every_exception_is_a_case_that_runs_and_is_there_once():
    names = {(case.suite, case.name) for suite in SUITES for case in within(suite)}
    assert set(AS_ONNX_RUNTIME) <= names
    for device in DEVICES:
        listed = [(g.suite, n) for g in EXCEPTIONS if device in g.devices for n in g.names]
        assert set(listed) <= names and len(set(listed)) == len(listed)
    assert all(group.names and set(group.devices) <= set(DEVICES) for group in EXCEPTIONS)


def test_expectations_that_are_not_exact(monkeypatch):
    """Our results are within the tolerance of the double-precision results."""
    choose(monkeypatch, "cpu")
    compared = []
    named = {case.name: case for case in cases("node")}
    for name, case in named.items():
        if not failing("cpu").get(("node", name), "").startswith("our result is within"):
            continue
        whole = named[name.removesuffix("_expanded")]
        for (inputs, _), (expected, true) in zip(case.data(), exact(whole), strict=True):
            results = onnx_backend.prepare(case.model).run(inputs)
            for got, want, right in zip(results, expected, true, strict=True):
                assert right.dtype == np.float64
                assert not np.array_equal(want, right.astype(want.dtype))
                assert_allclose(got, right, case.rtol, case.atol)
            compared.append(name)
    assert len(compared) == 4

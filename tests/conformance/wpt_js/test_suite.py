"""Unmodified files of web-platform-tests in Node, against the committed counts.

A sample of the files runs, each in one variant; with --explore all of them in all variants. Results
are compared with docs/javascript.json, so that a subtest that is lost or skipped is noticed.
"""

from __future__ import annotations

import json

import pytest

from scripts.generate.suite_table import COUNTS
from tests.conformance.wpt import suite
from tests.support import node
from tests.support.drivers import require_vulkan

#: One file of each kind: interfaces, operators, validation, tensors, contexts.
SAMPLE = {
    "cpu": (
        "validation_tests/constant.https", "validation_tests/destroyContext",
        "validation_tests/unprintableNames", "conformance_tests/mlNumber",
        "conformance_tests/byob_readtensor", "conformance_tests/conv2d.https",
    ),
    "gpu": ("idlharness.https.any.js", "conformance_tests/lstm_cell", "conformance_tests/tensor"),
}


def expected() -> dict[tuple[str, str], list[int]]:
    stored = json.loads(COUNTS.read_text(encoding="utf-8"))
    return {(f, v): n for f, row in stored["counts"].items() for v, n in row.items()}


def run_suite(folder, *filters: str) -> dict[tuple[str, str], list[int]]:
    """Passed and all subtests by file and variant."""
    if not node.SUITE.is_dir():
        pytest.skip(suite.ABSENT)
    output = folder / "results.json"
    done = node.run(
        "wpt/run.js", node.SUITE, "--json", output, "--jobs", "2", *filters, folder=folder,
        timeout=3500,
    )
    assert output.is_file(), done.stdout + done.stderr
    counts: dict[tuple[str, str], list[int]] = {}
    for result in json.loads(output.read_text()):
        assert set(result) == {"file", "variant", "subtest", "status", "message"}
        row = counts.setdefault((result["file"], result["variant"]), [0, 0])
        row[0] += result["status"] == "PASS"
        row[1] += 1
    return counts


@pytest.mark.device
@pytest.mark.parametrize("device", SAMPLE)
def test_sample(device, tmp_path):
    if device == "gpu":
        require_vulkan()
    suffix = f".any.js?{device}"
    names = [name if name.endswith(".js") else f"{name.removesuffix('.https')}.https{suffix}"
             for name in SAMPLE[device]]
    counts = run_suite(tmp_path, *names)
    assert len(counts) >= len(names)
    known = expected()
    assert counts == {key: known[key] for key in counts}


@pytest.mark.device
@pytest.mark.explore
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("device", ["cpu", "gpu", "npu"])
def test_all(device, tmp_path):
    require_vulkan()
    counts = run_suite(tmp_path, device)
    known = {key: value for key, value in expected().items() if key[1].endswith(device)}
    assert counts == known


def test_a_wrong_result_is_a_failure(tmp_path):
    """A copy of a test with other expectations fails: the runner can report that."""
    if not node.SUITE.is_dir():
        pytest.skip(suite.ABSENT)
    root = tmp_path / "suite"
    (root / "webnn").mkdir(parents=True)
    (root / "resources").symlink_to(node.SUITE / "resources")
    test = """// META: variant=?cpu
promise_test(async () => {
  const context = await navigator.ml.createContext();
  const builder = new MLGraphBuilder(context);
  assert_array_equals(builder.input('x', {dataType: 'int8', shape: [2]}).shape, [3]);
}, 'wrong');
promise_test(() => Promise.reject(new Error('no reason')), 'rejects');
test(() => assert_true(true), 'right');
"""
    (root / "webnn" / "wrong.window.js").write_text(test)
    (root / "webnn" / "broken.any.js").write_text("test(() => {}, 'fine'); nonsense(;")
    done = node.run(
        "wpt/run.js", root, "--json", tmp_path / "results.json", folder=tmp_path
    )
    assert done.returncode == 1, done.stdout
    results = {
        (r["file"], r["variant"], r["subtest"]): r["status"]
        for r in json.loads((tmp_path / "results.json").read_text())
    }
    assert results[("webnn/wrong.window.js", "?cpu", "wrong")] == "FAIL"
    assert results[("webnn/wrong.window.js", "?cpu", "rejects")] == "FAIL"
    assert results[("webnn/wrong.window.js", "?cpu", "right")] == "PASS"
    assert results[("webnn/broken.any.js", "", "")] == "ERROR"
    assert results[("webnn/broken.any.js", ".worker", "")] == "ERROR"

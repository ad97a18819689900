"""docs/adding-an-operator.md works as written: one new file adds the operator everywhere."""

import os
import re
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose
from tests.support.drivers import require_vulkan
from tests.support.paths import ROOT

PAGE = (ROOT / "docs" / "adding-an-operator.md").read_text(encoding="utf-8")
SNIPPETS = RECORD, USE = re.findall(r"^```python\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)

# The checks that tests/conformance/differential makes for every operator, for this one.
RANDOM = """
from tests.conformance.differential import bounds
from tests.conformance.differential.bounds import mismatch
from tests.conformance.differential.drafting import examples
from tests.conformance.differential.example import Count, run
from hypothesis import HealthCheck, given, seed, settings, strategies as st
from tests.support import selection
from tests.support.random_examples import without_local_constants
import webnn_vk

without_local_constants()

# As the page says: softplus and tanh one after the other, and the rounding of beta x.
bounds._ULPS["mish"] = 144
# Down to -104 softplus is a denormal number, whose last bit counts as often.
bounds._ABSOLUTE["mish"] = 104 * 2.0**-149
count = Count()
contexts = [
    webnn_vk.ml.create_context(settings=webnn_vk.Settings(device=d)).result()
    for d in ("vulkan", "cpu")
]

@seed(selection.chance("adding").getrandbits(64))
@settings(
    max_examples=10, deadline=None, database=None, derandomize=False,
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(examples("mish"), min_size=8, max_size=8))
def check(batch):
    got, expected = (run(context, batch) for context in contexts)
    for example, a, e in zip(batch, got, expected):
        count.add(example)
        error = mismatch(example, a, e)
        assert error is None, f"{error}\\n{example.in_full()}"

check()
assert count.examples >= 80 and not count.missing("mish")
for context in contexts:
    context.destroy()
print("random examples agree")
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A copy of the package with the one file that the page shows."""
    folder = tmp_path_factory.mktemp("package")
    shutil.copytree(
        ROOT / "webnn_vk", folder / "webnn_vk", ignore=shutil.ignore_patterns("__pycache__")
    )
    file = folder / "webnn_vk" / re.search(r"Make `webnn_vk/(compiler/ops/\w+\.py)`", PAGE)[1]
    assert not file.exists()
    file.write_text(RECORD, encoding="utf-8")
    return folder


def run(package, code):
    require_vulkan()
    path = os.pathsep.join([str(package), str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=package, env={**os.environ, "PYTHONPATH": path},
        capture_output=True, text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_runs_on_both_devices(package):
    vulkan, kernel, cpu, reference, limits = run(package, USE).splitlines()
    assert kernel == "elementwise" and reference == "numpy"
    x = np.linspace(-4, 4, 9)
    expected = x * np.tanh(np.log1p(np.exp(1.5 * x)))
    for line, device in ((vulkan, "vulkan"), (cpu, "cpu")):
        name, values = line.split(" ", 1)
        assert name == device
        assert_allclose(eval(values), expected, atol=2e-4)
    assert limits == "['input', 'output']"


@pytest.mark.explore
def test_everything_else_follows_from_the_record(package):
    text = run(package, """
import inspect, webnn_vk
from bench.isa.catalogue import catalogue
from scripts.generate import operator_table
from webnn_vk.tools.operators import table
print(inspect.signature(webnn_vk.MLGraphBuilder.mish))
print("`mish`" in table())
rows = operator_table.page(operator_table.load_counts()).splitlines()
print(next(row for row in rows if row.startswith("| `mish`")))
print(sum("tanh" in str(spec.options) and "w_softplus" in str(spec.options)
          for spec in catalogue(frozenset())))
""")
    signature, in_table, row, kernels = text.splitlines()
    assert signature == (
        "(self, /, input: 'MLOperand', *, beta: 'float' = 1.0, label: 'str' = '') -> 'MLOperand'"
    )
    assert row == "| `mish` | V C | V C |  |  |  |  |  |  | – | – |"  # no vectors
    # One module for each of the two data types, and one that reads float32 as texels.
    assert (in_table, kernels) == ("True", "3")


def test_random_examples_come_from_the_record(package):
    assert "random examples agree" in run(package, RANDOM)


def test_what_is_wrong_is_said_with_the_label(package):
    text = run(package, """
import webnn_vk
with webnn_vk.ml.create_context(settings=webnn_vk.Settings(device="cpu")).result() as context:
    builder = webnn_vk.MLGraphBuilder(context)
    x = builder.input("x", {"data_type": "int8", "shape": []})
    y = builder.input("y", {"data_type": "float32", "shape": []})
    for operand, beta in ((x, 1), (y, 1e39)):
        try:
            builder.mish(operand, beta=beta, label="a")
        except TypeError as error:
            print(error)
""")
    types, beta = text.splitlines()
    assert types.startswith("mish [a]: input is int8[]; its data type has to be one of")
    assert beta == "mish [a]: beta is 1e+39, which is infinite in float32"


def test_the_commands_exist():
    lines = "".join(COMMANDS).splitlines()
    assert len(lines) > 1
    for line in lines:
        words = line.split()
        assert words[0] == "python"
        package = words[1] == "-m"
        target = words[2].replace(".", "/") + "/__main__.py" if package else words[1]
        assert words[2:3] == ["pytest"] or (ROOT / target).is_file(), line

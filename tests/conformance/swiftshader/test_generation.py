"""Decoders on SwiftShader and on the lavapipe of a newer Mesa: two architectures that are drawn,
and weights of 4 bits."""

from __future__ import annotations

import os

import pytest

from tests.conformance.swiftshader.test_swiftshader import END, driver, run_child
from tests.support import selection, summary

__all__ = ["driver"]
pytestmark = pytest.mark.device
#: Largest difference of logits, beside the largest logit: of float32, and of rounded weights.
BOUND, ROUNDED = 4e-6, 2e-5


@pytest.mark.timeout(END + 60)
def test_generation(driver, tmp_path, record_property):
    seed = selection.seed()
    found = run_child(driver, tmp_path, "--seed", seed, module="generation")
    assert driver[0] in found["device"]
    assert found["validating"] == (os.environ["WEBNN_VK_VALIDATE"] == "1")
    assert not found["messages"], "\n".join(found["messages"])
    shown = ", ".join(f"{m['name']} {m['difference']:.1e}" for m in found["models"])
    record_property(summary.LINE, f"{found['device']}: {shown} ({selection.SEED}={seed})")
    for model in found["models"]:
        bound = BOUND if model["name"].endswith("float32") else ROUNDED
        assert model["difference"] <= bound, shown
        host, device = model["chosen"]
        assert host == device and len(host) == 12
        assert model["greedy"] and model["cpu_steps"] == 0

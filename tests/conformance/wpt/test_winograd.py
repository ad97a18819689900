"""The suite's vectors of conv2d with 3x3 taps have few channels, so Winograd computes none of them.
Here it does: each vector is widened as much as the tiles need, in a way that keeps its results."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytest

from tests.conformance.ways import limits_of
from tests.conformance.wpt import conformance, suite
from tests.support.contexts import open_context
from tests.support.running import device_profile
from webnn_vk.compiler.kernels.heuristics.gpu import Gpu
from webnn_vk.compiler.kernels.heuristics.rules import only
from webnn_vk.compiler.kernels.heuristics.software import Software
from webnn_vk.compiler.kernels.winograd_tiles import LEAST_INPUTS

#: By device: whose rules choose, and the kernel.
DEVICES = {"software": (Software, "winograd"), "gpu": (Gpu, "winograd_tiled")}
LAYOUTS = ("nchw", "nhwc")
FILTERS = ("oihw", "hwio", "ohwi", "ihwo")
OUTPUTS = 16


def _options(step: Mapping[str, Any]) -> dict[str, Any]:
    return next((a["options"] for a in step["arguments"] if "options" in a), {})


def _suits(case: Mapping[str, Any]) -> bool:
    graph = case["graph"]
    if [step["name"] for step in graph["operators"]] != ["conv2d"]:
        return False
    options = _options(graph["operators"][0])
    x, taps = list(graph["inputs"].values())[:2]
    layout = options.get("filterLayout", "oihw")
    sides = {d: taps["descriptor"]["shape"][i] for i, d in enumerate(layout)}
    return (
        x["descriptor"]["dataType"] == "float32" and (sides["h"], sides["w"]) == (3, 3)
        and options.get("groups", 1) == 1 and set(options.get("strides", [1])) == {1}
        and set(options.get("dilations", [1])) == {1}
    )


def _resource(array: np.ndarray, **more: Any) -> dict[str, Any]:
    descriptor = {"shape": list(array.shape), "dataType": "float32"}
    return {"data": array.reshape(-1).tolist(), "descriptor": descriptor, **more}


def _moved(array: np.ndarray, before: str, after: str) -> np.ndarray:
    return np.ascontiguousarray(array.transpose([before.index(d) for d in after]))


def _widened(case: Mapping[str, Any], inputs: int, x_to: str, layout: str) -> dict[str, Any]:
    """The case in layouts ``x_to`` and ``layout`` (the filter's). Each input channel is repeated,
    times powers of two that its taps are divided by, and each output channel is repeated. The
    tolerance follows the suite's rule."""
    decode, graph = suite.comparer().decode, case["graph"]
    options = _options(graph["operators"][0])
    names = list(graph["inputs"])
    resources = {name: decode(r) for name, r in graph["inputs"].items()}
    x_from = options.get("inputLayout", "nchw")
    resources[names[0]] = _moved(resources[names[0]], x_from, x_to)
    resources[names[1]] = _moved(resources[names[1]], options.get("filterLayout", "oihw"), layout)
    x_axis = x_to.index("c")
    times = -(-inputs // resources[names[0]].shape[x_axis])
    times = 1 << (times - 1).bit_length()
    x = np.concatenate(
        [resources[names[0]] * 2.0 ** (i % 5 - 2) for i in range(times)], x_axis
    ).astype(np.float32)
    taps = np.concatenate(
        [resources[names[1]] * 2.0 ** (2 - i % 5) / times for i in range(times)],
        layout.index("i"),
    ).astype(np.float32)
    taps = np.concatenate([taps] * OUTPUTS, layout.index("o"))
    made = {names[0]: _resource(x), names[1]: _resource(taps, constant=True)}
    for name in names[2:]:
        made[name] = _resource(np.concatenate([resources[name]] * OUTPUTS), constant=True)
    ((output, expected),) = graph["expectedOutputs"].items()
    wide = np.concatenate([_moved(decode(expected), x_from, x_to)] * OUTPUTS, x_axis)
    (step,) = graph["operators"]
    given = {**options, "inputLayout": x_to, "filterLayout": layout}
    positional = [argument for argument in step["arguments"] if "options" not in argument]
    return {
        **case, "tolerance": {"metric": "ULP", "value": 2 * 9 * x.shape[x_axis]},
        "graph": {
            "inputs": made, "operators": [{**step, "arguments": [*positional, {"options": given}]}],
            "expectedOutputs": {output: _resource(wide)},
        },
    }


def cases() -> Iterator[tuple[str, dict[str, Any]]]:
    for file, case in conformance.cases("conv2d"):
        if _suits(case):
            yield f"{file}: {case['name']}", case


@pytest.mark.skipif(not suite.PRESENT, reason=suite.ABSENT)
@pytest.mark.device
@pytest.mark.parametrize("device, tile", list(itertools.product(DEVICES, LEAST_INPUTS)))
def test_vectors_by_tiles(device: str, tile: int, vulkan: Any, monkeypatch: Any) -> None:
    rules, kernel = DEVICES[device]
    wanted = only("the test's", lambda c: c.kernel == kernel and c["TILE"] == tile)
    monkeypatch.setattr(rules, "conv", lambda *_: [wanted])
    count = 0
    with open_context(limits=limits_of(device, device_profile()), skip_passes=("fold",)) as context:
        for (title, case), *layouts in itertools.product(cases(), LAYOUTS, FILTERS):
            wide = _widened(case, LEAST_INPUTS[tile], *layouts)
            error, report = conformance.run_case(context, wide, "")
            assert error is None, (title, layouts)
            assert "winograd_product" in str(report), (title, layouts)
            count += 1
    assert count >= 16

"""`python -m bench isa --captured`: captured kernels are judged by the same formula as ours."""

from __future__ import annotations

import json

import pytest

from bench.isa import beside, beside_child, workloads
from tests.support.paths import ROOT
from webnn_vk.codegen.isa import FAMILIES, chip_profile
from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.tools import ToolError

CHIP = "NAVI21"


@pytest.mark.explore
def test_our_own_kernels_captured_have_our_bounds(radv, tmp_path, capsys):
    """All workloads pass through a folder of files, as peers' do."""
    profile = DeviceProfile.from_json(chip_profile(CHIP))
    for name in workloads.WORKLOADS:
        beside_child.ours(profile, name).write(tmp_path / "mirror" / name)
    empty = tmp_path / "nobody" / "add_relu_chain_1m"
    empty.mkdir(parents=True)
    (empty / "log.txt").write_text("=== run\n", encoding="utf-8")
    beside.main([CHIP], tmp_path, tmp_path / "table.json")
    rows = json.loads((tmp_path / "table.json").read_text(encoding="utf-8"))[CHIP]
    by_name = {(row["workload"], row["who"]): row for row in rows}
    assert len(rows) == len(by_name) == 2 * len(workloads.WORKLOADS) + 1
    for name in workloads.WORKLOADS:
        ours, mirror = by_name[name, "webnn_vk"], by_name[name, "mirror"]
        assert ours["error"] is mirror["error"] is None and ours["bound"]["all"] > 0
        assert mirror["bound"] == pytest.approx(ours["bound"])
    assert "nothing was dispatched" in by_name["add_relu_chain_1m", "nobody"]["error"]
    shown = capsys.readouterr().out
    assert "? nobody, add_relu_chain_1m: nothing was dispatched" in shown
    assert shown.count("1.00×") == len(workloads.WORKLOADS)


#: Workloads for which a peer's kernels have a lower bound.
BEHIND = {
    "NAVI21": {"matmul_512", "softmax_12x128x128", "bert_2l_128"},
    "GFX1100": {"softmax_12x128x128"},
    "VEGA10": {"softmax_12x128x128", "bert_2l_128"},
}


def published(chip):
    """Bounds in µs by workload and engine, of `docs/bounds.json`."""
    rows = json.loads((ROOT / "docs" / "bounds.json").read_text(encoding="utf-8"))[chip]
    return {(row["workload"], row["who"]): row["bound"] for row in rows}


@pytest.mark.explore
@pytest.mark.parametrize("chip", FAMILIES)
def test_the_published_bounds_are_ours(chip, radv, tmp_path):
    """No kernel is worse than the published figures, and only kernels in `BEHIND` than a peer's."""
    for name in workloads.WORKLOADS:
        folder = tmp_path / "nobody" / name
        folder.mkdir(parents=True)
        (folder / "log.txt").write_text("=== run\n", encoding="utf-8")
    found = {row["workload"]: row for row in beside.rows_for(chip, tmp_path) if row["bound"]}
    assert found.keys() == workloads.WORKLOADS.keys()
    assert {row["who"] for row in found.values()} == {"webnn_vk"}
    known = published(chip)
    worse = {
        name: row["bound"]["all"] for name, row in found.items()
        if row["bound"]["all"] > 1.01 * known[name, "webnn_vk"]["all"]
    }
    assert not worse
    fastest = {
        name: min(b["all"] for (of, who), b in known.items()
                  if of == name and who != "webnn_vk" and b is not None)
        for name in found
    }
    behind = {name for name, row in found.items() if row["bound"]["all"] > fastest[name]}
    assert behind <= BEHIND[chip]
    product = found["matmul_512"]["dispatches"]
    assert sum(d["multiply_adds"] for d in product) == pytest.approx(512**3, rel=0.01)
    # Rows of 768 are summed without shared memory, and two rows share their scale.
    (norm,) = found["layernorm_128x768"]["dispatches"]
    assert norm["one"]["lds"] == 0 and norm["groups"] == [64, 1, 1]


def test_what_can_not_be_judged_is_an_error(radv, tmp_path):
    with pytest.raises(ToolError, match="no captures"):
        beside.rows_for(CHIP, tmp_path)
    with pytest.raises(ToolError, match="NAVI99"):
        beside.rows_for("NAVI99", tmp_path)

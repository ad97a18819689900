"""The table of chips, and how their processes are started; no driver is."""

from __future__ import annotations

from pathlib import Path

import pytest

from webnn_vk.codegen.isa import NoDriver, chip_profile, chips
from webnn_vk.codegen.isa.chips import CHIPS, chip_of


def test_every_maker_is_there() -> None:
    assert {chip.driver.name for chip in CHIPS.values()} == {
        "RADV", "NVK", "ANV", "Turnip", "PanVK", "Honeykrisp"
    }
    assert len(CHIPS) == 20 and all(name == chip.name for name, chip in CHIPS.items())
    assert len({(c.driver.name, *sorted(c.variables.items())) for c in CHIPS.values()}) == 20


@pytest.mark.parametrize(
    ("name", "statistics", "expected"),
    [
        ("navi31", {"VGPRs": 48, "Spilled VGPRs": 2, "Spilled SGPRs": 3, "Subgroups per SIMD": 16,
                    "Inverse Throughput": 90, "Scratch size": 20}, (5, None, 20, 48, 16, 90)),
        ("adreno750", {
            "STP Count": 1, "LDP Count": 4, "Registers used": 12, "Instruction Count": 50,
            "Max Waves Per Core": 8, "Estimated cycles stalled on SS": 20,
            "Estimated cycles stalled on SY": 7,
        }, (1, 4, None, 12, 8, 77)),
        ("mali-g610", {"Spills": 0, "Fills": 0, "Registers used": 10, "Threads": 2, "Cycles": 6.5},
         (0, 0, None, 10, 2, 6.5)),
        ("m1", {"Spills": 0, "Fills": 0, "GPRs": 11, "Threads": 1024},
         (0, 0, None, 11, 1024, None)),
        # By the installed RADV.
        ("NAVI21", {"VGPRs": 8, "Spilled VGPRs": 0}, (0, None, None, 8, None, None)),
    ],
)
def test_figures(
    name: str, statistics: dict[str, int | float], expected: tuple[int | float | None, ...]
) -> None:
    names = "spills", "fills", "scratch", "registers", "occupancy", "cycles"
    assert chip_of(name).figures(statistics) == dict(zip(names, expected, strict=True))


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder as scripts/install-chips makes it, of empty files."""
    monkeypatch.setenv("WEBNN_VK_CHIPS", str(tmp_path))
    for chip in CHIPS.values():
        root = tmp_path / chip.driver.release / chip.driver.architecture
        triple = {"amd64": "x86_64", "arm64": "aarch64"}[chip.driver.architecture]
        for path in (
            root / f"usr/share/vulkan/icd.d/{chip.driver.manifest}_icd.json",
            root / "usr/bin/python3.13",
            root / f"usr/lib/{triple}-linux-gnu/lib{chip.driver.shim}_noop_drm_shim.so",
        ):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return tmp_path


@pytest.mark.parametrize("name", CHIPS)
def test_commands_name_files_that_are_there(installed: Path, name: str) -> None:
    assert chips.missing(CHIPS[name]) is None
    words, variables = chips.command(CHIPS[name], installed / "packages", ["-m", "some.module"])
    assert words[-3:] == [
        str(installed / CHIPS[name].driver.release / CHIPS[name].driver.architecture
            / "usr/bin/python3.13"), "-m", "some.module",
    ]
    text = " ".join([*words, *(f"{name}={value}" for name, value in variables.items())])
    for variable, value in CHIPS[name].variables.items():
        assert f"{variable}={value}" in text
    assert f"{CHIPS[name].driver.manifest}_icd.json" in text and str(installed / "packages") in text
    assert ("qemu-aarch64" in words[0]) == (CHIPS[name].driver.architecture == "arm64")


def test_missing_drivers_name_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WEBNN_VK_CHIPS", str(tmp_path))
    with pytest.raises(NoDriver, match="ANV for dg2 is not in .*: scripts/install-chips lays it"):
        chip_profile("dg2")


def test_the_folder_is_in_the_users_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("WEBNN_VK_CHIPS", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    # Not in a cache of shaders that is only for this process, or switched off.
    monkeypatch.setenv("WEBNN_VK_CACHE", "off")
    assert chips.folder() == tmp_path / "webnn_vk" / "chips"


import pytest

from tests.support.profiles import stored_profile
from webnn_vk.driver.vulkan.quirks import (
    COMPILES_AT_FIRST_SUBMIT,
    QUIRKS,
    SIGNAL_DEADLOCKS_WAIT,
    Quirk,
    compiles_by_size,
    max_loop_iterations,
    quirks_of,
    unusable_features,
)

LLVMPIPE = stored_profile("llvmpipe")
AMD = stored_profile("amd_navi31")


def test_entries_have_reasons() -> None:
    assert all(quirk.reason and quirk.driver for quirk in QUIRKS)
    assert len({(quirk.name, quirk.driver, quirk.first) for quirk in QUIRKS}) == len(QUIRKS)


def test_drivers() -> None:
    assert COMPILES_AT_FIRST_SUBMIT in quirks_of(LLVMPIPE)
    assert quirks_of(AMD) == frozenset()
    assert quirks_of(AMD, "1.3.239") == {SIGNAL_DEADLOCKS_WAIT}
    assert quirks_of(AMD, "1.3.261") == frozenset()


def test_long_loops() -> None:
    # Quirks in the table are in profiles: kernels don't read the table.
    assert max_loop_iterations("llvmpipe", "22.3.6") == 65_535 == LLVMPIPE.max_loop_iterations
    assert max_loop_iterations("radv", "22.3.6") is None is AMD.max_loop_iterations


def test_sizes_that_are_compiled_for() -> None:
    assert compiles_by_size("llvmpipe", "22.3.6") is True is LLVMPIPE.compiles_by_size
    assert compiles_by_size("radv", "22.3.6") is False is AMD.compiles_by_size


def test_64_bit_integers_before_volta() -> None:
    older, newer = {"int64", "int16"}, {"int64", "int16", "float16_arithmetic"}
    assert unusable_features("NVK", "26.1.6", older) == {"int64"}
    assert unusable_features("NVK", "26.1.6", newer) == frozenset()
    assert unusable_features("NVIDIA", "575.64", older) == frozenset()


@pytest.mark.parametrize(("first", "fixed", "version", "holds"), [
    ("", "", "24.2.8", True),
    ("24.2", "", "24.2.8", True),
    ("24.3", "", "24.2.8", False),
    ("", "24.2.8", "24.2.8", False),
    ("", "24.10", "24.2.8", True),  # numbers, not text
    ("22", "24.2.9", "24.2.8", True),
])
def test_version_ranges(first: str, fixed: str, version: str, holds: bool) -> None:
    assert Quirk("odd", "radv", "for the test", first, fixed).holds("radv", version) is holds
    assert Quirk("odd", "radv", "for the test", first, fixed).holds("llvmpipe", version) is False

"""Known driver bugs and peculiarities: named entries with the affected drivers and a reason."""

from __future__ import annotations

import re
from collections.abc import Container

from webnn_vk.driver.device_profile import DeviceProfile
from webnn_vk.support.dataclass import dataclass

COMPILES_BY_SIZE = "compiles_by_size"
COMPILES_AT_FIRST_SUBMIT = "compiles_at_first_submit"
ENDS_LONG_LOOPS = "ends_long_loops"
NO_64_BIT_INTEGERS = "no_64_bit_integers"
OVERCOMMITS_MEMORY = "overcommits_memory"
SIGNAL_DEADLOCKS_WAIT = "signal_deadlocks_wait"
LAYER = "VK_LAYER_KHRONOS_validation"


@dataclass(frozen=True)
class Quirk:
    """One entry. It holds for `driver` (VkPhysicalDeviceDriverProperties::driverName, or a layer)
    from version `first` up to, excluding, `fixed`; an empty version is no bound. `limit` is the
    number that it is about, where it has one. `lacking`: it concerns devices without this feature.
    """

    name: str
    driver: str
    reason: str
    first: str = ""
    fixed: str = ""
    limit: int | None = None
    lacking: str = ""

    def holds(self, driver: str, version: str, features: Container[str] = ()) -> bool:
        """Whether a driver of this name and version is affected, with these features."""
        numbers = _parts(version)
        return (driver == self.driver and numbers >= _parts(self.first)
                and (not self.fixed or numbers < _parts(self.fixed))
                and (not self.lacking or self.lacking not in features))


QUIRKS = (
    Quirk(COMPILES_AT_FIRST_SUBMIT, "llvmpipe",
          "compute shaders are compiled when the queue first runs them, not at pipeline creation "
          "(measured with Mesa 22.3: 30 element-wise pipelines take 12 ms to create and 290 ms in "
          "the first submit; empty dispatches suffice)"),
    Quirk(COMPILES_BY_SIZE, "llvmpipe",
          "a pipeline is compiled again for each pattern of what llvmpipe takes for properties of "
          "images: whether the number of mip levels is 0, which for a view of a buffer are bits 8 "
          "to 15 of its size in bytes, and whether the buffer's width is a power of two (Mesa "
          "22.3: MobileNetV2's 14 pipelines were compiled 40 times; "
          "tests/device/runtime/test_texel_views.py)"),
    Quirk(ENDS_LONG_LOOPS, "llvmpipe",
          "once the loops of an invocation have made 65,535 iterations in all, each of them ends, "
          "silently (Mesa's LP_MAX_TGSI_LOOP_ITERATIONS; the test of a condition that fails counts "
          "too; tests/kernels/test_iterations.py)", limit=65_535),
    Quirk(NO_64_BIT_INTEGERS, "NVK",
          "before Volta (the first with arithmetic in half precision) the compiler finds no "
          "registers for some steps on 64-bit integers and makes no pipeline (Mesa 26.1.6: 24 "
          "modules of dequantize_linear for a GTX 1080); these integers are emulated",
          lacking="float16_arithmetic"),
    Quirk(OVERCOMMITS_MEMORY, "llvmpipe",
          "40 allocations of 512 MiB succeed on a heap that reports 2 GiB (measured with Mesa "
          "22.3); memory.py counts and refuses"),
    Quirk(SIGNAL_DEADLOCKS_WAIT, LAYER,
          "with synchronisation validation vkWaitSemaphores and vkGetSemaphoreCounterValue hold a "
          "lock that vkSignalSemaphore on another thread needs: 10 s of waiting, then a false "
          "UNASSIGNED-VkSemaphore-state-timeout (KhronosGroup/Vulkan-ValidationLayers#4968, "
          "mended by #6138); semaphores.py lets such calls take turns", fixed="1.3.261"),
)


def quirks_of(profile: DeviceProfile, layer_version: str = "") -> frozenset[str]:
    """The names of the quirks of a device, and of the validation layer in use ("": none)."""
    return frozenset(quirk.name for quirk in QUIRKS if (
        quirk.holds(profile.driver_name, profile.driver_version, profile.features)
        or (layer_version and quirk.holds(LAYER, layer_version))))


def max_loop_iterations(driver: str, version: str) -> int | None:
    """Iterations after which a driver ends an invocation's loops; None: it never does."""
    return min((quirk.limit for quirk in QUIRKS if quirk.name == ENDS_LONG_LOOPS
                and quirk.limit is not None and quirk.holds(driver, version)), default=None)


def compiles_by_size(driver: str, version: str) -> bool:
    """Whether a driver compiles a pipeline again for some sizes of texel views."""
    return any(quirk.holds(driver, version) for quirk in QUIRKS if quirk.name == COMPILES_BY_SIZE)


def unusable_features(driver: str, version: str, features: Container[str]) -> frozenset[str]:
    """Features that a device lists and that are not used, since the driver fails with them."""
    broken = any(quirk.holds(driver, version, features) for quirk in QUIRKS
                 if quirk.name == NO_64_BIT_INTEGERS)
    return frozenset({"int64"} if broken else ())


def _parts(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))

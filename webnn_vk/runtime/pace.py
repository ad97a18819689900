"""How much work one submit may hold."""

from __future__ import annotations

from ..device_profile import DeviceProfile

#: Seconds that one submit may take. Watchdogs reset a device after 2 s (Windows) to 10 s (amdgpu);
#: anyone else's work on the device, a desktop's for example, waits for a submit to end.
BATCH_SECONDS = 0.2

#: Floating-point operations per second by type of device: what our products reach on a slow one of
#: its kind, estimated low, since the bound is there for the slow ones. A graph is never cut: one
#: that is estimated above the bound goes alone.
RATES = {
    "cpu": 20e9,  # llvmpipe on two cores: 15 to 30 GFLOP/s in float32 products
    "integrated": 200e9,  # a fifth of the 1 TFLOP/s that such GPUs of 2018 on have on paper
    "discrete": 2e12,  # a fifth of the 10 TFLOP/s of a card of the middle class
    "virtual": 200e9,  # a share of someone's GPU
    "other": 100e9,  # accelerators and phones that don't say
}


def batch_flops(profile: DeviceProfile | None) -> int:
    """Estimated floating-point operations that make up ``BATCH_SECONDS`` on a device; None is the
    CPU device, which has no watchdog but the same speed as a software one."""
    rate = RATES["cpu" if profile is None else profile.device_type]
    return int(rate * BATCH_SECONDS)

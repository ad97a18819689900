"""Devices that run on the CPU: llvmpipe, SwiftShader. Measured on lavapipe (Mesa 22.3) at 1ae5cd9,
on two cores, unless said otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...device_profile import DeviceProfile
from ..schedule import Schedule
from .rules import Rules


class Software(Rules):
    """Preferences of a device whose workgroup is a task of one core with 8-wide SIMD, and whose
    driver takes 100 ms and more to compile each distinct tile size."""

    #: Invocations that keep a few cores busy.
    fill = 1024
    #: Outputs below each other that an invocation of a depthwise convolution computes: powers of 2
    #: would leave a part of the usual 7, 14, 28 ... rows idle.
    depthwise_rows = (7, 4, 1)

    def workgroup(self, count: int) -> int:
        """Invocations per workgroup where ``count`` of them work independently: small enough that
        few invocations still occupy all the cores."""
        return 16 if count < 512 else 64

    def elementwise(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """One SIMD group a workgroup, since each further one costs 35 ns to start, and several
        vectors for each invocation, as long as all cores have some."""
        candidates = [c for c in candidates if c.load == "texel"] or candidates
        small = [c for c in candidates if c["LX"] == 8]
        many = [c for c in small if problem.size >= self.fill * 4 * c["ITEMS"]]
        return max(many or small[:1], key=lambda c: c["ITEMS"])

    def matmul(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """One SIMD group a workgroup, and few distinct sizes."""
        vector = [c for c in candidates if c.kernel == "matvec"]
        if vector:
            return min(vector, key=lambda c: c["LX"] * c["LY"])
        texels = [c for c in candidates if c.load == "texel"]
        rows, columns = 8 if problem.m > 4 else 4, 8 if problem.n > 32 or texels else 4
        return next(
            c for c in texels or candidates
            if c.kernel == "matmul" and (c["LY"], c["TM"], c["TN"]) == (1, rows, columns)
        )

    def rows(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """Only few long rows need sharing. Texels where they can be had: loads from storage buffers
        take ten times as long."""
        candidates = [c for c in candidates if c.load == "texel"] or candidates
        wanted = 32 if problem.rows < 64 and problem.length >= 256 else 1
        return next((c for c in candidates if c["lanes"] >= wanted), candidates[-1])

    def chunks(self, rows: int, length: int) -> int:
        """Into how many pieces each of few and very long rows is cut."""
        return max(1, min(256 // rows, length // 4096))

    def conv(
        self, candidates: Sequence[Schedule], problem: Any, profile: DeviceProfile
    ) -> Schedule:
        """Depthwise kernels where they fit, else one SIMD group of pixels a workgroup."""
        depthwise = [c for c in candidates if c.kernel == "conv_depthwise"]
        for tall in self.depthwise_rows:
            for candidate in depthwise:
                if candidate["TP"] == tall:
                    return candidate
        channels = 8 if problem.OC > 4 else 4
        return next(
            c for c in candidates
            if c.kernel == "conv" and c["LX"] == 8 and c["TC"] == channels
        )

"""Devices that run on the CPU: llvmpipe, SwiftShader. Measured on lavapipe (Mesa 22.3) at 1ae5cd9,
on two cores, unless said otherwise."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from webnn_vk.support.integers import ceil_divide

from ..cost import estimate
from ..schedule import Schedule
from .device_classes import SoftwareClass
from .rules import Rules


class Software(Rules):
    """Preferences of a device whose workgroup is a task of one core with 8-wide SIMD, and whose
    driver takes 100 ms and more to compile each distinct tile size."""

    device: SoftwareClass

    def copy(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Shared memory is no faster than other memory."""
        return candidates[0]

    def elementwise(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """One SIMD group for each workgroup, because each further one costs 35 ns to start.
        Several vectors for each invocation, as long as every core has work."""
        candidates = [c for c in candidates if c.load == "texel"] or candidates
        small = [c for c in candidates if c["LX"] == 8]
        many = [c for c in small if problem.size >= self.device.min_invocations * 4 * c["ITEMS"]]
        return max(many or small[:1], key=lambda c: c["ITEMS"])

    def matmul(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """One SIMD group for each workgroup, and few distinct sizes. Texels if possible: Mesa
        loads a texel for eight invocations in 20 cycles, but a vector of a storage buffer element
        by element (512 x 512 x 512: 22 against 274 ms of CPU time)."""
        vector = [c for c in candidates if c.kernel == "matvec"]
        if vector:
            return min(_fastest_loads(vector), key=self._cost(problem))
        texels = [c for c in candidates if c.load == "texel"]
        large = texels and problem.m * problem.n * problem.k >= self.device.large_product
        rows = 4 if problem.m <= 4 else 16 if large and problem.m > 8 else 8
        columns = 8 if problem.n > 32 or texels else 4
        direct = (c for c in texels or candidates if c.kernel == "matmul")
        sizes = 1, rows, columns
        return next(c for c in direct if (c["LY"], c["TM"], c["TN"]) == sizes)

    def block_product(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """One SIMD group for each workgroup, and as many rows as there are."""
        candidates = _fastest_loads(candidates)
        by_rows = [c for c in candidates if c.kernel == "matvec_blocks" and c["LX"] == 8]
        if by_rows:
            return by_rows[-1]
        sizes = 1, 4 if problem.m <= 4 else 8, 8
        direct = (c for c in candidates if c.kernel == "matmul")
        return next(c for c in direct if (c["LY"], c["TM"], c["TN"]) == sizes)

    def _cost(self, problem: Any) -> Callable[[Schedule], float]:
        """The modelled time of a schedule of a kernel that the model knows."""
        return lambda schedule: estimate(problem, schedule, self.device.cost) or 0.0

    def attention(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """One SIMD group for each workgroup, as for products."""
        return next((c for c in candidates if (c["LX"], c["LY"]) == (8, 1)), candidates[-1])

    def recurrence(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Texels. Rows share the weights that they read, as long as every core has work."""
        candidates = [c for c in _fastest_loads(candidates) if c["LY"] == 1]
        many = [
            c for c in candidates
            if problem.directions * ceil_divide(problem.batch, c["ROWS"]) >= self.device.cost.units
        ]
        return max(many or candidates[:1], key=lambda c: c["ROWS"])

    def rows(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Only few long rows need sharing. Texels if available: loads from storage buffers take
        ten times as long."""
        candidates = [c for c in candidates if c.load == "texel"] or candidates
        wanted = 32 if problem.rows < 64 and problem.length >= 256 else 1
        return next((c for c in candidates if c["lanes"] >= wanted), candidates[-1])

    def conv(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Depthwise kernels where they fit, Winograd's where they save time, else one SIMD group
        of pixels for each workgroup."""
        candidates = _fastest_loads(candidates)
        depthwise = [c for c in candidates if c.kernel == "conv_depthwise"]
        for tall in self.device.depthwise_rows:
            for candidate in depthwise:
                if candidate["TP"] == tall:
                    return candidate
        winograd = [c for c in candidates if c.kernel == "winograd"]
        pixels = problem.N * problem.OH * problem.OW
        channels = min(problem.IC, problem.OC)
        device = self.device
        # Where only small tiles are exact enough.
        small = not any(c["TILE"] == 4 for c in winograd) and (
            channels < device.small_tile_channels or pixels > device.small_tile_pixels
        )
        if winograd and not small and (
            channels >= device.winograd_channels and pixels >= device.winograd_pixels
        ):
            return self._winograd(winograd, problem)
        wide = [c for c in candidates if c.kernel == "conv_wide" and c.load == "texel"]
        if wide:
            work = pixels * problem.OC * problem.IC * problem.KH * problem.KW
            tile = (16, 8) if work >= device.large_convolution else (8, 8)
            if work < device.small_convolution:
                tile = 8, 4
            return next(c for c in wide if (c["TC"], c["TP"]) == tile)
        channels = 8 if problem.OC > 4 else 4
        direct = (c for c in candidates if c.kernel == "conv" and c["LX"] == 8)
        return next(c for c in direct if c["TC"] == channels)

    def _winograd(self, candidates: Sequence[Schedule], problem: Any) -> Schedule:
        """Large tiles where they save a third of the multiplications of small ones, since their
        filter takes twice the memory (ResNet-50's 14x14 layers: 31 MB for 2 % of its time), and
        where there are enough of them to fill the products' rows. Two sizes of product, 8 or 4
        tiles by 64 channels."""
        small, large = (
            problem.N * ceil_divide(problem.OH, tile) * ceil_divide(problem.OW, tile)
            for tile in (2, 4)
        )
        pays = 3 * 36 * large <= 2 * 16 * small  # multiplications for each tile
        exact = any(c["TILE"] == 4 for c in candidates)
        tile, tiles = (4, large) if exact and pays and large >= 8 else (2, small)
        rows = 8 if tiles > 4 else 4
        columns = 8 if problem.OC > 32 else 4
        return next(
            c for c in candidates if (c["TILE"], c["TM"], c["TN"]) == (tile, rows, columns)
        )


def _fastest_loads(candidates: Sequence[Schedule]) -> Sequence[Schedule]:
    """Those that read texels, if any do: lavapipe loads storage buffers lane by lane, through
    memory (63 ns a load of 8 elements where texels take 7 ns for 32, on an EPYC of 2021)."""
    return [c for c in candidates if c.load == "texel"] or candidates

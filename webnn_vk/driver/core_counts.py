"""How many cores GPUs have whose drivers don't say: of Intel by the device's number, of Qualcomm
and Apple by its name. A core runs workgroups side by side: an Xe core or a subslice of Intel, a
shader processor of Adreno, a core of Apple as its maker counts them."""

from __future__ import annotations

import re

_INTEL = 0x8086
#: Of the largest variant that a number stands for.
_INTEL_CORES = {
    # Skylake to Coffee Lake: HD Graphics 530 and 630, UHD Graphics 630.
    **dict.fromkeys((0x1912, 0x5912, 0x3E92, 0x3E98), 3),
    # Tiger Lake and Alder Lake: Iris Xe; UHD Graphics 770.
    **dict.fromkeys((0x9A49, 0x46A6, 0xA7A0), 6), 0x4680: 2, 0xA780: 2,
    # Arc A770, A750, A580, A380, A310; A770M, A730M, A550M, A370M, A350M.
    0x56A0: 32, 0x56A1: 28, 0x56A2: 24, 0x56A5: 8, 0x56A6: 6,
    0x5690: 32, 0x5691: 24, 0x5692: 16, 0x5693: 8, 0x5694: 6,
    # Meteor Lake, with and without Arc in its name; Lunar Lake; Arc B580 and B570.
    0x7D55: 8, 0x7D45: 4, 0x64A0: 8, 0xE20B: 20, 0xE20C: 18,
}
_ADRENO_CORES = {
    **dict.fromkeys(("615", "616", "618", "619", "620"), 1), "630": 2, "640": 2, "680": 4,
    "650": 3, "660": 3, "690": 8, "725": 4, "730": 4, "735": 3, "740": 6, "750": 6, "X1-85": 6,
}
#: By the chip, as Mesa names it, and by the product, as Metal does.
_APPLE_CORES = {
    "G13G": 8, "G13S": 16, "G13C": 32, "G13D": 64, "G14G": 10, "G14S": 19, "G14C": 38, "G14D": 76,
    "M1": 8, "M1 Pro": 16, "M1 Max": 32, "M1 Ultra": 64,
    "M2": 10, "M2 Pro": 19, "M2 Max": 38, "M2 Ultra": 76,
    "M3": 10, "M3 Pro": 18, "M3 Max": 40, "M4": 10, "M4 Pro": 20, "M4 Max": 40,
}
_NAMES = (
    (re.compile(r"Adreno \(TM\) (\d+|X1-85)"), _ADRENO_CORES),
    (re.compile(r"Apple .*\((G1\d[A-Z])"), _APPLE_CORES),
    (re.compile(r"Apple (M\d(?: (?:Pro|Max|Ultra))?)$"), _APPLE_CORES),
)


def known_cores(vendor_id: int, device_id: int, name: str) -> int:
    """The number of cores of a GPU; 0: not known."""
    if vendor_id == _INTEL:
        return _INTEL_CORES.get(device_id, 0)
    found = ((pattern.search(name), cores) for pattern, cores in _NAMES)
    return next((cores.get(match[1], 0) for match, cores in found if match), 0)

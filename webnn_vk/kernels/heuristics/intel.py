"""Intel GPUs: the rules for any GPU, until measurements on such devices say otherwise.

Cooperative matrices are left to tuning: on an Arc A770 others saw anything from a thousandth to
twenty times the speed (llama.cpp's issue 24404).
"""

from __future__ import annotations

from .gpu import Gpu


class Intel(Gpu):
    """Preferences of Intel GPUs."""

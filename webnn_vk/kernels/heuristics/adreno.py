"""Qualcomm Adreno GPUs: the rules for any GPU, until measurements on such devices say otherwise.

Cooperative matrices are left to tuning: ncnn turned them off there (its issue 6719).
"""

from __future__ import annotations

from .gpu import Gpu


class Adreno(Gpu):
    """Preferences of Qualcomm Adreno GPUs."""

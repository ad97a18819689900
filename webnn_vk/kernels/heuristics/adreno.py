"""Qualcomm Adreno GPUs: the rules for any GPU, until measurements on such devices say otherwise."""

from __future__ import annotations

from .gpu import Gpu


class Adreno(Gpu):
    """Preferences of Qualcomm Adreno GPUs."""

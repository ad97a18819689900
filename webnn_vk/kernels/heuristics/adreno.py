"""Qualcomm Adreno GPUs: nothing of their own yet; a measurement that says otherwise goes here."""

from __future__ import annotations

from .gpu import Gpu


class Adreno(Gpu):
    """Preferences of Qualcomm Adreno GPUs."""

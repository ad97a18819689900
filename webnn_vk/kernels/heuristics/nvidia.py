"""NVIDIA GPUs: nothing of their own yet; a measurement that says otherwise goes here."""

from __future__ import annotations

from .gpu import Gpu


class Nvidia(Gpu):
    """Preferences of NVIDIA GPUs."""

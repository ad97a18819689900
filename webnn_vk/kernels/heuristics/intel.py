"""Intel GPUs: nothing of their own yet; a measurement that says otherwise goes here."""

from __future__ import annotations

from .gpu import Gpu


class Intel(Gpu):
    """Preferences of Intel GPUs."""

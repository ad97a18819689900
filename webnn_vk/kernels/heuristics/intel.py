"""Intel GPUs: the rules for any GPU, until measurements on such devices say otherwise."""

from __future__ import annotations

from .gpu import Gpu


class Intel(Gpu):
    """Preferences of Intel GPUs."""

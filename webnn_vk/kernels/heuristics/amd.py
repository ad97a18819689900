"""AMD GPUs: nothing of their own yet; a measurement that says otherwise goes here."""

from __future__ import annotations

from .gpu import Gpu


class Amd(Gpu):
    """Preferences of AMD GPUs."""

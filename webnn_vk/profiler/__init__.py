"""Profiles of a context's work (``context.profile()``) and pictures of graphs. Imports `gpu/` and
the folders below it."""

from .profile import Profile
from .report import HostTime, KernelTime, ProfileReport, Transfer
from .roofline import Roofline

__all__ = ["HostTime", "KernelTime", "Profile", "ProfileReport", "Roofline", "Transfer"]

"""Paths of the checkout, so that no test counts its own parent folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: Files that checkouts share and no commit contains: the web-platform-tests, for example.
SHARED = ROOT.parent / "shared"

"""Where things lie, so that no test counts its own folders."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
#: What checkouts share and no commit holds: the web-platform-tests, for example.
SHARED = ROOT.parent / "shared"

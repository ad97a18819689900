"""The version in the footer of every page and in the site's title, from the package's one place."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

INIT = Path(__file__).parents[2] / "webnn_vk" / "__init__.py"


def version() -> str:
    """`__version__`, read without importing the package."""
    return re.findall(r'^__version__ = "(.+)"$', INIT.read_text(encoding="utf-8"), re.MULTILINE)[0]


def on_config(config: Any) -> Any:
    """Called by mkdocs with the configuration."""
    config.site_name = f"webnn_vk {version()}"
    config.copyright = f"webnn_vk {version()}, Apache-2.0"
    return config

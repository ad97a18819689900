"""Pages of the site made of `examples/`: a hook of mkdocs.

Each notebook and each program becomes a page below ``examples/``, with the file beside it for
downloading. The documentation's sources link to the files (``../examples/NAME.ipynb``), which works
where they are read as they are; here the links lead to the pages.
"""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
_LINK = re.compile(r"\]\(\.\./examples/(\w+)\.(?:py|ipynb)\)")
_VARIES = "*What this shows differs from machine to machine.*"


def sources() -> list[Path]:
    """The notebooks and the programs."""
    programs = (path for path in EXAMPLES.glob("*.py") if path.name != "__init__.py")
    return sorted([*EXAMPLES.glob("*.ipynb"), *programs])


def page(path: Path) -> str:
    """The Markdown of a notebook or a program."""
    text = path.read_text(encoding="utf-8")
    return notebook_page(json.loads(text), path.name) if path.suffix == ".ipynb" else \
        program_page(text, path.name)


def notebook_page(notebook: dict[str, Any], name: str) -> str:
    """Text as it stands, code with what it shows."""
    parts: list[str] = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            parts.append(source)
            continue
        parts.append(f"```python\n{source}\n```")
        shown = "".join(text for output in cell["outputs"] for text in output["text"])
        if shown:
            parts.append(f"```text\n{shown.rstrip()}\n```")
        elif "varies" in cell["metadata"].get("tags", ()):
            parts.append(_VARIES)
    title, _, rest = "\n\n".join(parts).partition("\n")
    return f"{title}\n\n[{name}]({name}), to be run in Jupyter.\n{rest}\n"


def program_page(text: str, name: str) -> str:
    """What the program says of itself, and the program."""
    tree = ast.parse(text)
    about = ast.get_docstring(tree) or ""
    code = "\n".join(text.splitlines()[tree.body[0].end_lineno:]).strip("\n")
    return f"# {name}\n\n{about}\n\n[{name}]({name})\n\n```python\n{code}\n```\n"


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and what they are made of."""
    for path in sources():
        files.append(File.generated(config, f"examples/{path.stem}.md", content=page(path)))
        files.append(File.generated(config, f"examples/{path.name}", abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to the files of `examples/` lead to their pages."""
    return _LINK.sub(r"](examples/\1.md)", markdown)

"""Runs notebooks without a kernel: their cells in order on an event loop of this process, with
``await`` at the top level, and their output.

A cell whose output differs from machine to machine has the tag "varies" and no output in the file.
Every other cell shows the file's output in every run.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import io
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import nbformat

VARIES = "varies"


def shown(path: Path) -> list[str]:
    """Each code cell's printed output, and its last expression's value as text."""
    names: dict[str, Any] = {"__name__": "__main__", "__builtins__": __builtins__}
    notebook = nbformat.read(path, 4)
    nbformat.validate(notebook)
    with asyncio.Runner() as runner:
        return [
            runner.run(_shown(cell.source, f"{path.name}[{number}]", names))
            for number, cell in enumerate(notebook.cells) if cell.cell_type == "code"
        ]


async def _shown(source: str, title: str, names: dict[str, Any]) -> str:
    tree = ast.parse(source, title)
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        await _evaluated(compile(tree, title, "exec", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT), names)
        if last is not None:
            code = compile(
                ast.Expression(last.value), title, "eval", ast.PyCF_ALLOW_TOP_LEVEL_AWAIT
            )
            value = await _evaluated(code, names)
            if value is not None:
                print(repr(value))
    return printed.getvalue()


async def _evaluated(code: CodeType, names: dict[str, Any]) -> Any:
    value = FunctionType(code, names)()
    return await value if inspect.iscoroutine(value) else value


def expected(path: Path) -> list[str | None]:
    """Each code cell's output in the file; None where it varies."""
    texts: list[str | None] = []
    for cell in nbformat.read(path, 4).cells:
        if cell.cell_type == "code":
            outputs = cell.outputs
            assert all(output.output_type == "stream" for output in outputs)
            varies = VARIES in cell.metadata.get("tags", ())
            assert not (varies and outputs), f"an output of one machine: {cell.source}"
            texts.append(None if varies else "".join(output.text for output in outputs))
    return texts


def update(path: Path, texts: list[str]) -> None:
    """Writes the cells' output into the file."""
    notebook = nbformat.read(path, 4)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for cell, text in zip(cells, texts, strict=True):
        kept = text and VARIES not in cell.metadata.get("tags", ())
        cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text=text)] if kept else []
    nbformat.write(notebook, path)

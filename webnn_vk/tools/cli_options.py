"""Options that several commands share, and their completion."""

from __future__ import annotations

import os
from typing import Annotated, Any

import typer

import webnn_vk


# -- completion -----------------------------------------------------------------------------------
def complete_models(incomplete: str) -> list[str]:
    """Completions of MODEL: model files, folders and saved graphs."""
    if incomplete.startswith("cache:"):
        from .caches import saved_graphs

        return [key for key in (f"cache:{key}" for key in saved_graphs()) if
                key.startswith(incomplete)]
    folder, start = os.path.split(incomplete)
    try:
        entries = list(os.scandir(folder or "."))
    except OSError:
        return []
    return sorted(
        os.path.join(folder, entry.name) + "/" * entry.is_dir() for entry in entries
        if entry.name.startswith(start)
        and (entry.is_dir() or entry.name.endswith((".onnx", ".webnn")))
    ) + ["cache:"] * "cache:".startswith(incomplete)


def complete_devices(incomplete: str) -> list[str]:
    names = [info.name for info in webnn_vk.devices() if info.is_vulkan]
    return [name for name in ("cpu", "vulkan", *names) if name.startswith(incomplete)]


# -- options that commands share ------------------------------------------------------------------
def _shape_list(given: list[str] | None) -> list[str]:
    from .models import parse_shapes

    try:
        parse_shapes(given or [])
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None
    return given or []


def option(*names: str, help: str, metavar: str | None = None, **more: Any) -> Any:
    """An option whose default the help does not show."""
    return typer.Option(*names, metavar=metavar, show_default=False, help=help, **more)


Model = Annotated[str, typer.Argument(
    metavar="MODEL", autocompletion=complete_models, show_default=False,
    help="A .onnx or .webnn file, or cache:KEY, a saved graph.")]
Device = Annotated[str | None, option(
    "--device", metavar="NAME", autocompletion=complete_devices,
    help="Index, name, uuid:…, pci:…, vulkan or cpu.")]
Json = Annotated[bool, typer.Option("--json", help="JSON alone on stdout.")]
Shape = Annotated[list[str] | None, option(
    "--shape", metavar="NAME=1,3,48,192", callback=_shape_list,
    help="An input's shape; else batch 1, 224 for images, 8 for others.")]
Input = Annotated[list[str] | None, option(
    "--input", "-i", metavar="[NAME=]WHAT",
    help="random, numbers, FILE.npy, FILE.npz or an image.")]
Outputs = Annotated[list[str] | None, option(
    "--outputs", metavar="NAME,NAME", help="ONNX: only these outputs or inner values.")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Seed of random inputs.")]


def options_of(
    model: str, device: str | None, as_json: bool, shape: list[str] | None,
    inputs: list[str] | None, seed: int = 0, outputs: list[str] | None = None, **more: Any,
) -> Any:
    from .inputs import read_inputs
    from .loaded_model import Options
    from .models import kind_of, parse_shapes

    kind = kind_of(model)  # checked before a device is opened
    if outputs and kind != "onnx":
        raise typer.BadParameter("--outputs is only for ONNX models")
    names = tuple(name for text in outputs or () for name in text.split(",") if name)
    return Options(
        model, device, parse_shapes(shape or []), read_inputs(inputs or []), seed, json=as_json,
        outputs=names or None, **more,
    )


def numbers(text: str, option: str) -> tuple[float, ...]:
    try:
        return tuple(float(number) for number in text.split(","))
    except ValueError:
        raise typer.BadParameter(f"{option}: {text!r} is not a number, nor several with commas") \
            from None

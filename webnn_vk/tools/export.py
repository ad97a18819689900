"""``webnn-vk export``: write a model as an ONNX file, a .webnn file or a saved graph."""

from __future__ import annotations

from pathlib import Path

from webnn_vk.support.errors import DOMException

from . import ToolError
from .loaded_model import Options, loaded
from .models import SAVED, need_packages, onnx_package
from .output import emit, size, writing


def export(options: Options, target: str, opset: int | None) -> None:
    """Write the model to ``target``: NAME.onnx, NAME.webnn or cache:KEY."""
    suffix = Path(target).suffix.lower()
    saving = target.startswith(SAVED)
    if target == SAVED:
        raise ToolError(f"{SAVED}KEY saves the graph: the key is missing")
    if not saving and suffix not in (".onnx", ".webnn"):
        raise ToolError(f"{target!r}: a model is written as .onnx, .webnn or {SAVED}KEY")
    if opset is not None and (saving or suffix != ".onnx"):
        raise ToolError("--opset is only for .onnx files")
    by_target = {".onnx": ("onnx",), ".webnn": ("weights",)}.get(suffix, ())
    need_packages(options.model, *(() if saving else by_target))
    with loaded(options) as model:
        model.bar.begin("writing")
        try:
            with writing(target):
                if saving:
                    model.context.save_graph(target.removeprefix(SAVED), model.graph).result()
                    written: list[Path] = []
                elif suffix == ".onnx":
                    onnx_package().export(model.graph, target, opset=opset)
                    written = [Path(target)]
                else:
                    from webnn_vk import webnn_file

                    webnn_file.save(model.graph, target)
                    written = [Path(target), Path(target).with_suffix(".safetensors")]
        except (DOMException, ValueError, TypeError, ImportError) as error:
            raise ToolError(f"{target}: {error}") from None
    files = {str(path): path.stat().st_size for path in written if path.exists()}
    if options.json:
        emit({"model": model.title, "target": target, "files": files})
        return
    print(f"{model.title} is written as {target}")
    for name, count in files.items():
        print(f"  {name}  {size(count)}")

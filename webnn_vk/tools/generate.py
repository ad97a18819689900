"""``webnn-vk generate``: text that a decoder model writes."""

from __future__ import annotations

import importlib.resources
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from webnn_vk.support.errors import DOMException
from webnn_vk.support.formatting import duration

from . import ToolError, need
from .devices import device_title, open_context
from .output import emit, working

#: What the demo continues if nothing is given, and the most tokens that it adds.
PROMPT, DEMO_TOKENS = "The library", 100


def demo_model() -> Path:
    """The small model of the repository (`examples/docs_decoder/train.py` made it)."""
    return Path(str(importlib.resources.files("webnn_vk.examples") / "docs_decoder"))


def demo(prompt: str | None, device: str | None, as_json: bool) -> None:
    """Write text with the small model, which was trained on this project's documentation."""
    folder = demo_model()
    if not folder.is_dir():
        raise ToolError(
            "the model of this demo is in the repository, in examples/docs_decoder, and not in the "
            "installed package; webnn-vk generate MODEL takes any other"
        )
    generate(
        str(folder), PROMPT if prompt is None else prompt, DEMO_TOKENS, chat=False, device=device,
        dtype=None, activations=None, context_length=None, as_json=as_json, sampling={},
    )


def generate(
    path: str, prompt: str, count: int, *, chat: bool | None, device: str | None,
    dtype: str | None, activations: str | None, context_length: int | None, as_json: bool,
    sampling: Mapping[str, Any],
) -> None:
    """Write the text that follows a prompt as it comes, and on stderr how fast it came. ``chat``:
    the prompt is a user's message; None: if the model has a chat template."""
    need("generate needs", "generation")
    from webnn_vk.generate import InvalidModelError, Model

    try:
        start = time.perf_counter()
        # Only a device that can't be opened is an error of the tool's own.
        context = open_context(device)
        with working("loading", 100) as bar:
            model = Model.load(
                path, context, dtype=dtype, context_length=context_length, activations=activations,
                progress=lambda done, total: bar.reach(100 * done / total),
            )
        loaded = time.perf_counter()
        if chat is None:
            chat = model.tokenizer.has_chat_template
        text = [{"role": "user", "content": prompt}] if chat else prompt
        with model.session() as session:
            stream = session.stream(text, count, **sampling)
            pieces, first = [], 0.0
            for piece in stream:
                first = first or time.perf_counter()
                pieces.append(piece)
                if not as_json:
                    sys.stdout.write(piece)
                    sys.stdout.flush()
            end = time.perf_counter()
            tokens = stream.token_count
    except (InvalidModelError, DOMException, ValueError) as error:
        raise ToolError(" ".join(str(error).split())) from None
    seconds = {"load": loaded - start, "first": (first or end) - loaded, "all": end - loaded}
    if as_json:
        emit({"device": device_title(model.context), "text": "".join(pieces), "tokens": tokens,
              "seconds": seconds})
        return
    print()
    print(
        f"{model!r} on {device_title(model.context)}: loaded in {duration(seconds['load'])}, first "
        f"text after {duration(seconds['first'])}, {tokens} tokens in {duration(seconds['all'])}",
        file=sys.stderr,
    )

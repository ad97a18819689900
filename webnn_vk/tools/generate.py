"""``webnn-vk generate``: text that a decoder model writes."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from typing import Any

from webnn_vk.support.errors import DOMException
from webnn_vk.support.formatting import duration

from . import ToolError, need
from .devices import device_title, open_context
from .output import emit


def generate(
    path: str, prompt: str, count: int, *, chat: bool | None, device: str | None,
    dtype: str | None, context_length: int | None, as_json: bool, sampling: Mapping[str, Any],
) -> None:
    """Write the text that follows a prompt as it comes, and on stderr how fast it came. ``chat``:
    the prompt is a user's message; None: if the model has a chat template."""
    need("generate needs", "generation")
    from webnn_vk.generate import InvalidModelError, Model

    try:
        start = time.perf_counter()
        # Only a device that can't be opened is an error of the tool's own.
        model = Model.load(
            path, open_context(device), dtype=dtype, context_length=context_length
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

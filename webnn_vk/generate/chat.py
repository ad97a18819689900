"""Chat templates: messages of a conversation → the text that a model was trained on."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from webnn_vk.support.errors import sanitize

from .errors import InvalidModelError

#: Seconds after which a template is given up.
SECONDS = 30


def rendered(template: str, values: Mapping[str, Any]) -> str:
    """The text of a template. It runs in a process of its own (``chat_worker``). InvalidModelError
    if it fails, or exceeds the limits; TypeError for values that JSON can't hold."""
    for name, value in values.items():
        try:
            json.dumps(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise TypeError(
                f"{sanitize(name)[:80]} of the chat template is not what JSON can hold: "
                f"{sanitize(str(error))[:200]}"
            ) from None
    request = json.dumps({"template": template, "values": dict(values)}).encode()
    worker = str(Path(__file__).with_name("chat_worker.py"))
    try:
        # -P: modules of this folder are not found under the names of others.
        done = subprocess.run(
            [sys.executable, "-P", worker], input=request, capture_output=True, timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InvalidModelError(f"the chat template takes longer than {SECONDS} s") from None
    try:
        answer = json.loads(done.stdout)
    except ValueError:
        raise InvalidModelError(
            "the chat template exceeds its limits of time or memory"
        ) from None
    if "error" in answer:
        raise InvalidModelError(f"the chat template fails: {sanitize(answer['error'])[:300]}")
    text: str = answer["text"]
    return text


def checked_messages(messages: Any) -> list[dict[str, Any]]:
    """Messages as a list of {"role": …, "content": …}. TypeError for others."""
    if not isinstance(messages, Sequence) or isinstance(messages, (str, bytes)):
        raise TypeError("messages is a sequence of mappings with role and content")
    for message in messages:
        if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
            raise TypeError(
                f"a message is a mapping with role and content, not {sanitize(repr(message))[:80]}"
            )
    return [dict(message) for message in messages]

"""The chat service of `examples/` under load: many clients at once, each text compared with the one
that the model writes alone.

The model is Llama-like, with random weights; its words are numbers.
"""

from __future__ import annotations

import http.client
import json
import math
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from webnn_vk.generate import Model
from webnn_vk.tools import ToolError
from webnn_vk.tools.devices import open_context

from .generation import write_model
from .table import show

SERVICE = Path(__file__).parents[1] / "examples" / "chat_service.py"
#: Different prompts, and the most words of one.
PROMPTS, WORDS = 40, 30
#: Tokens of a text, and how many texts there are for each one that its client leaves.
TOKENS, LEAVES = 24, 10
_TEMPLATE = "{% for m in messages %}{{ m['content'] }} {% endfor %}"


def main(device: str | None, clients: int, seconds: float, megabytes: int) -> None:
    """Texts, those that differ, tokens a second, time to the first token, memory of the service."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_model(folder, megabytes)
        write_tokenizer(folder, 8192)
        prompts = [
            " ".join(f"w{chance.randrange(8192)}" for _ in range(chance.randint(1, WORDS)))
            for _ in range(PROMPTS)
        ]
        with open_context(device) as context:
            print(context.device_info)
            model = Model.load(folder, context, context_length=256)
            expected = {
                p: model.generate([{"role": "user", "content": p}], TOKENS, temperature=0)
                for p in prompts
            }
        with service(folder, device) as (port, process):
            load = Load(port, expected)
            load.run(clients, min(seconds, 10))
            before = _resident(process.pid)
            load = Load(port, expected)
            load.run(clients, seconds)
            after = _resident(process.pid)
    if not load.first:
        raise ToolError(f"no text within {seconds:g} s; --seconds gives more")
    first = sorted(load.first)
    rows = [[
        f"{clients}", f"{load.texts}", f"{load.cancelled}", f"{load.wrong}", f"{load.failed}",
        f"{load.tokens / seconds:.0f}", f"{statistics.median(first):.2f} s",
        f"{first[int(0.95 * len(first))]:.2f} s", f"{before / 1e6:.0f} MB", f"{after / 1e6:.0f} MB",
    ]]
    show(("clients", "texts", "cancelled", "wrong", "failed", "tokens/s", "first token",
          "95 % of them", "memory", "in the end"), rows)


def write_tokenizer(folder: Path, vocabulary: int) -> None:
    """Words w0, w1, …, and a template that says what was said."""
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = {f"w{number}": number for number in range(vocabulary)}
    made = Tokenizer(models.WordLevel(words, unk_token="w0"))
    made.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"chat_template": _TEMPLATE}))


@contextmanager
def service(folder: Path, device: str | None) -> Iterator[tuple[int, subprocess.Popen[bytes]]]:
    """The port and the process of a service that answers."""
    environment = os.environ | ({"WEBNN_VK_DEVICE": device} if device else {})
    log = folder / "service.log"
    with log.open("wb") as output:
        # The system chooses a free port; the service says which, once it listens.
        process = subprocess.Popen(
            [sys.executable, str(SERVICE), str(folder), "--port", "0"], env=environment,
            stdout=subprocess.DEVNULL, stderr=output,
        )
    try:
        for _ in range(3000):
            text = log.read_text(encoding="utf-8", errors="replace")
            if listening := re.search(r"running on http://127\.0\.0\.1:(\d+)", text):
                break
            if process.poll() is not None:
                raise ToolError(f"the service ended with {process.returncode}: {text[-1000:]}")
            time.sleep(0.1)
        else:
            raise ToolError("the service did not listen within five minutes")
        yield int(listening[1]), process
    finally:
        process.terminate()
        process.wait()


def _resident(process: int) -> int:
    """Bytes of memory of a process."""
    pages = Path(f"/proc/{process}/statm").read_text().split()[1]
    return int(pages) * os.sysconf("SC_PAGE_SIZE")


class Load:
    """Clients that ask for one text after the other."""

    def __init__(self, port: int, expected: dict[str, str]) -> None:
        self.port, self.expected = port, expected
        self.texts = self.wrong = self.failed = self.cancelled = self.tokens = 0
        self.first: list[float] = []
        self._lock = threading.Lock()

    def run(self, clients: int, seconds: float = math.inf, texts: float = math.inf) -> None:
        """Have ``clients`` threads ask for ``seconds``, each for at most this number of texts."""
        end = time.monotonic() + seconds
        threads = [
            threading.Thread(target=self._client, args=(n, end, texts)) for n in range(clients)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def _client(self, number: int, end: float, texts: float) -> None:
        chance = random.Random(number)
        prompts = list(self.expected)
        asked = 0
        while time.monotonic() < end and asked < texts:
            asked += 1
            prompt = chance.choice(prompts)
            leaves = chance.randrange(LEAVES) == 0
            try:
                self._ask(prompt, chance.randint(1, TOKENS - 1) if leaves else None)
            except (OSError, http.client.HTTPException, KeyError, ValueError):
                with self._lock:
                    self.failed += 1

    def _ask(self, prompt: str, leaves_after: int | None) -> None:
        body = {
            "messages": [{"role": "user", "content": prompt}], "max_tokens": TOKENS,
            "temperature": 0, "stream": True,
        }
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=300)
        start, pieces, first = time.monotonic(), [], None
        try:
            connection.request("POST", "/v1/chat/completions", json.dumps(body),
                               {"content-type": "application/json"})
            answer = connection.getresponse()
            if answer.status != 200:
                raise ValueError(answer.read())
            while (line := answer.readline().strip()) != b"data: [DONE]":
                if not line:
                    continue
                delta = json.loads(line.removeprefix(b"data: "))["choices"][0]["delta"]
                if "content" in delta and delta["content"]:
                    first = first or time.monotonic() - start
                    pieces.append(delta["content"])
                if len(pieces) == leaves_after:
                    break
        finally:
            connection.close()
        text, expected = "".join(pieces), self.expected[prompt]
        with self._lock:
            self.first += [] if first is None else [first]
            self.tokens += len(pieces)
            self.cancelled += leaves_after is not None
            self.texts += leaves_after is None
            wrong = text != expected if leaves_after is None else not expected.startswith(text)
            self.wrong += wrong

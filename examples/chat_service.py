"""A chat service with OpenAI's protocol. The texts of several users are computed together.

    pip install "webnn_vk[generate]" fastapi uvicorn
    python examples/chat_service.py SmolLM2-135M-Instruct
    curl localhost:8000/v1/chat/completions -H 'content-type: application/json' \\
        -d '{"messages": [{"role": "user", "content": "Why is the sky blue?"}], "stream": true}'
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, Response, StreamingResponse
from pydantic import BaseModel, ConfigDict, Field

from webnn_vk import OperationError, ml
from webnn_vk.generate import Model, TextStream

#: Texts that are written at a time. Each has a cache for the whole context; further requests wait.
TEXTS = 16


class Message(BaseModel):
    """One message."""

    role: Literal["system", "developer", "user", "assistant"]
    content: str


class StreamOptions(BaseModel):
    """Whether a stream ends with the numbers of its tokens."""

    include_usage: bool = False


class ChatRequest(BaseModel):
    """A conversation that is to be continued. Options that the service lacks are refused."""

    model_config = ConfigDict(extra="forbid")

    messages: list[Message] = Field(min_length=1)
    model: str | None = None
    max_tokens: int = Field(256, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    temperature: float | None = Field(None, ge=0, le=2)
    top_p: float | None = Field(None, gt=0, le=1)
    seed: int | None = Field(None, ge=0)
    stop: str | list[str] = []
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    n: Literal[1] = 1
    user: str | None = None


class Chat:
    """The model and the places for texts."""

    def __init__(self, model: Model, name: str) -> None:
        self.model, self.name = model, name
        self.places = asyncio.Semaphore(TEXTS)

    @asynccontextmanager
    async def text(self, asked: ChatRequest) -> AsyncIterator[TextStream]:
        """A text that is freed in the end, when its client has gone too."""
        async with self.places:
            stream = await asyncio.to_thread(
                self.model.stream, [message.model_dump() for message in asked.messages],
                asked.max_completion_tokens or asked.max_tokens, stop=asked.stop,
                temperature=asked.temperature, top_p=asked.top_p, seed=asked.seed,
            )
            try:
                yield stream
            finally:
                # It may wait for the token that is being computed; then the place is free.
                await asyncio.shield(asyncio.to_thread(stream.close))

    def reply(self, kind: str, choice: dict[str, Any] | None, **more: Any) -> dict[str, Any]:
        """What both kinds of replies have."""
        choices = [] if choice is None else [{"index": 0, "logprobs": None, **choice}]
        return {"object": kind, "model": self.name, "choices": choices, **more}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One model for the life of the service, on a context that ends with it."""
    path: Path = app.state.path
    async with await ml.create_context() as context:
        model = await asyncio.to_thread(Model.load, path, context)
        app.state.chat = Chat(model, path.name)
        yield


app = FastAPI(title="Chat", lifespan=lifespan)


@app.get("/v1/models")
async def models(request: Request) -> dict[str, Any]:
    """The model that the service has."""
    chat: Chat = request.app.state.chat
    return {"object": "list", "data": [{"id": chat.name, "object": "model", "owned_by": "local"}]}


@app.post("/v1/chat/completions")
async def complete(asked: ChatRequest, request: Request) -> Response:
    """The next message of a conversation, whole or as server-sent events."""
    chat: Chat = request.app.state.chat
    head = {"id": f"chatcmpl-{uuid.uuid4().hex}", "created": int(time.time())}
    if asked.stream:
        events = _events(chat, asked, head)
        # The first event is asked for here, so that a wrong request is refused by its status.
        first = await anext(events)
        return StreamingResponse(_after(first, events), media_type="text/event-stream")
    pieces = []
    async with chat.text(asked) as stream:
        async for piece in stream:
            pieces.append(piece)
            if await request.is_disconnected():
                break
    message = {"role": "assistant", "content": "".join(pieces)}
    choice = {"message": message, "finish_reason": stream.finish_reason}
    return JSONResponse(chat.reply("chat.completion", choice, usage=_usage(stream), **head))


async def _events(chat: Chat, asked: ChatRequest, head: dict[str, Any]) -> AsyncIterator[str]:
    def event(delta: dict[str, str], reason: str | None = None) -> str:
        choice = {"delta": delta, "finish_reason": reason}
        return _event(chat.reply("chat.completion.chunk", choice, **head))

    async with chat.text(asked) as stream:
        yield event({"role": "assistant", "content": ""})
        async for piece in stream:
            yield event({"content": piece})
        yield event({}, stream.finish_reason)
        if asked.stream_options.include_usage:
            yield _event(chat.reply("chat.completion.chunk", None, usage=_usage(stream), **head))
    yield "data: [DONE]\n\n"


async def _after(first: str, events: AsyncIterator[str]) -> AsyncIterator[str]:
    yield first
    async for event in events:
        yield event


def _event(content: dict[str, Any]) -> str:
    return f"data: {json.dumps(content)}\n\n"


def _usage(stream: TextStream) -> dict[str, int]:
    prompt, written = stream.prompt_token_count, stream.token_count
    return {
        "prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written
    }


@app.exception_handler(RequestValidationError)
async def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
    """A field that is missing, wrong or unknown."""
    found = error.errors()[0]
    return _refused(400, f"{'.'.join(map(str, found['loc'][1:]))}: {found['msg']}")


@app.exception_handler(ValueError)
async def wrong(request: Request, error: ValueError) -> JSONResponse:
    """A prompt without room in the context, for example."""
    return _refused(400, str(error))


@app.exception_handler(OperationError)
async def failed(request: Request, error: OperationError) -> JSONResponse:
    """No memory for another text, for example."""
    return _refused(503, str(error))


def _refused(status: int, message: str) -> JSONResponse:
    kind = "invalid_request_error" if status < 500 else "server_error"
    return JSONResponse({"error": {"message": message, "type": kind}}, status)


if __name__ == "__main__":
    import uvicorn

    parser = argparse.ArgumentParser(description="A chat service with OpenAI's protocol.")
    parser.add_argument("model", type=Path, help="a Hugging Face folder or a GGUF file")
    parser.add_argument("--port", type=int, default=8000)
    options = parser.parse_args()
    app.state.path = options.model
    uvicorn.run(app, port=options.port)

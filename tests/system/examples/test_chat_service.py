"""The chat service of `examples/` through its test client."""

from __future__ import annotations

import json
import threading

import pytest

from bench.serving import TOKENS, Load, service
from tests.support.text_models import text_folder
from webnn_vk import ml
from webnn_vk.generate import Model

pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")

URL = "/v1/chat/completions"


@pytest.fixture
def client(program, device, tmp_path):
    app = program("chat_service").app
    app.state.path = text_folder(tmp_path)
    with testclient.TestClient(app) as client:
        yield client


@pytest.fixture
def model(client):
    found: Model = client.app.state.chat.model
    return found


def asking(text: str, **more: object) -> dict[str, object]:
    return {"messages": [{"role": "user", "content": text}], "max_tokens": 12, **more}


def streamed(client, body) -> tuple[str, list[dict]]:
    """The text of a stream, and what came after it."""
    with client.stream("POST", URL, json={**body, "stream": True}) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        events = [line.removeprefix("data: ") for line in answer.iter_lines() if line]
    assert events.pop() == "[DONE]"
    found = [json.loads(event) for event in events]
    assert found[0]["choices"][0]["delta"]["role"] == "assistant"
    deltas = [event["choices"][0]["delta"] for event in found if event["choices"]]
    return "".join(delta.get("content", "") for delta in deltas), found


def test_a_message_whole_and_streamed(client, model):
    text = model.generate([{"role": "user", "content": "grüß dich"}], 12)
    answer = client.post(URL, json=asking("grüß dich"))
    assert answer.status_code == 200
    found = answer.json()
    (choice,) = found["choices"]
    assert choice["message"] == {"role": "assistant", "content": text}
    assert choice["finish_reason"] == "length" and found["object"] == "chat.completion"
    prompt = model.tokenizer.apply_chat_template([{"role": "user", "content": "grüß dich"}])
    count = len(model.tokenizer.encode(prompt, add_special_tokens=False))
    assert found["usage"] == {
        "prompt_tokens": count, "completion_tokens": 12, "total_tokens": count + 12
    }
    body = asking("grüß dich", stream_options={"include_usage": True})
    told, events = streamed(client, body)
    assert told == text
    assert events[-1]["usage"] == found["usage"] and events[-1]["choices"] == []
    assert events[-2]["choices"][0]["finish_reason"] == "length"
    assert client.get("/v1/models").json()["data"][0]["id"] == found["model"]


def test_options(client, model):
    messages = [{"role": "user", "content": "abc"}]
    text = model.generate(messages, 30)
    stop = text[6:9]
    choice = client.post(URL, json=asking("abc", max_tokens=30, stop=[stop])).json()["choices"][0]
    assert choice["message"]["content"] == text[: text.index(stop)]
    assert choice["finish_reason"] == "stop"
    options = {"temperature": 1.5, "top_p": 0.9, "seed": 5}
    sampled = client.post(URL, json=asking("abc", max_tokens=30, **options)).json()
    assert sampled["choices"][0]["message"]["content"] == model.generate(messages, 30, **options)


@pytest.mark.parametrize(
    ("body", "status", "message"),
    [
        (asking("x" * 400), 400, "tokens exceed the context of 200"),
        (asking("x" * 400, stream=True), 400, "tokens exceed the context of 200"),
        (asking("x", n=2), 400, "n: Input should be 1"),
        (asking("x", tools=[]), 400, "tools: Extra inputs are not permitted"),
        ({"messages": []}, 400, "messages: List should have at least 1 item"),
    ],
)
def test_wrong_requests(client, body, status, message):
    answer = client.post(URL, json=body)
    assert answer.status_code == status
    error = answer.json()["error"]
    assert message in error["message"] and error["type"] == "invalid_request_error"


def test_the_context_ends_with_the_service(program, device, tmp_path):
    app = program("chat_service").app
    app.state.path = text_folder(tmp_path)
    with testclient.TestClient(app) as client:
        assert client.post(URL, json=asking("abc")).status_code == 200
        context = app.state.chat.model.context
        assert not context.lost.done()
    assert context.lost.done()


def test_many_at_once(client, model):
    texts = [f"user {number}" for number in range(12)]
    alone = [model.generate([{"role": "user", "content": text}], 12) for text in texts]
    sizes, found = [], {}
    scheduler = model._engine.scheduler
    start = scheduler._start
    scheduler._start = lambda group: (sizes.append(len(group)), start(group))

    def ask(number: int) -> None:
        found[number] = streamed(client, asking(texts[number]))[0]

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[n] for n in range(len(texts))] == alone
    assert max(sizes) > 1


@pytest.mark.explore
def test_the_command_under_load(device, tmp_path):
    """The command of docs/generation.md, with clients that `python -m bench serving` has."""
    folder = text_folder(tmp_path)
    with ml.create_context().result() as context:
        model = Model.load(folder, context)
        expected = {
            text: model.generate([{"role": "user", "content": text}], TOKENS, temperature=0)
            for text in ("user 1", "another user", "grüß dich")
        }
    with service(folder, device) as (port, process):
        load = Load(port, expected)
        load.run(4, texts=10)
        assert process.poll() is None
    # Each client asks for the same texts in every run, and leaves some of them.
    assert (load.texts, load.cancelled) == (39, 1) and (load.wrong, load.failed) == (0, 0)
    # A text that is not the model's own is noticed.
    with service(folder, device) as (port, _):
        load = Load(port, {"user 1": "something else"})
        load.run(1, texts=2)
    assert load.wrong == load.texts + load.cancelled == 2

"""The FastAPI service of `examples/` through its test client, and likely mistakes with asyncio."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from tests.support.discriminating import assert_allclose

pytest.importorskip("fastapi")
testclient = pytest.importorskip("fastapi.testclient")


def similarities(module, vector):
    """Names and cosine similarities, greatest first."""
    products = np.array(list(module.CATALOGUE.values()))
    scores = products @ vector / np.linalg.norm(products, axis=1) / np.linalg.norm(vector)
    return [(list(module.CATALOGUE)[i], scores[i]) for i in np.argsort(-scores)]


def test_requests(program, device):
    module = program("service")
    with testclient.TestClient(module.app) as client:
        for vector, top in (([1, 0, 0, 1], 2), ([0.1, 3, 0, 0.5], 5), ([0, 0, 1, 0], 1)):
            answer = client.post("/search", json={"vector": vector, "top": top})
            assert answer.status_code == 200
            expected = similarities(module, vector)[:top]
            assert [match["name"] for match in answer.json()] == [name for name, _ in expected]
            scores = [match["score"] for match in answer.json()]
            assert_allclose(scores, [score for _, score in expected], rtol=1e-5)
        told = client.get("/device").json()["device"]
        assert told.startswith("CPU (") == (device == "cpu")
        refused = client.post("/search", json={"vector": [1, 2, 3]})
        assert refused.status_code == 422


def test_many_at_once(program, device):
    module = program("service")
    vectors = np.random.default_rng(3).random((24, 4)).tolist()
    found = {}
    with testclient.TestClient(module.app) as client:

        def ask(number):
            body = {"vector": vectors[number], "top": 1}
            found[number] = client.post("/search", json=body).json()[0]["name"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(vectors))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == {i: similarities(module, v)[0][0] for i, v in enumerate(vectors)}


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (
            ("await self.context.compute_async", "self.context.compute_async"),
            "TypeError: this is an MLPromise of outputs by name: call .result() or await it first",
        ),
        (
            ("with await webnn", "with webnn"),
            "TypeError: `async with`: this is an MLPromise of an MLContext: `async with await …`",
        ),
        (
            ("context, await builder", "context, builder"),
            "TypeError: compute_async: an MLGraph is expected, not an MLPromise of an MLGraph: "
            "call .result() or await it first",
        ),
        (
            ('"vector": [query', '"vectors": [query'),
            "TypeError: compute_async: inputs ['vectors'] were given, ['vector'] are expected",
        ),
    ],
    ids=["no await", "no context", "no graph", "wrong name"],
)
def test_mistakes(program, monkeypatch, edit, message):
    monkeypatch.setenv("WEBNN_VK_DEVICE", "cpu")
    module = program("service", edit)
    with pytest.raises(Exception) as caught, testclient.TestClient(module.app) as client:
        client.post("/search", json={"vector": [1, 0, 0, 1]})
    assert f"{type(caught.value).__name__}: {caught.value}" == message

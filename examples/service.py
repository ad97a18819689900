"""A web service on asyncio: the products most like a given vector, found on the device.

    pip install fastapi uvicorn
    uvicorn --app-dir examples service:app
    curl -X POST localhost:8000/search -H 'content-type: application/json' \\
        -d '{"vector": [1, 0, 0, 1], "top": 2}'
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
from fastapi import FastAPI, Request
from pydantic import BaseModel, Field

import webnn_vk as webnn

# How warm, light, warm-coloured and waterproof; by a model that embeds descriptions, in earnest.
CATALOGUE = {
    "down jacket": (0.9, 0.6, 0.2, 0.3),
    "rain coat": (0.2, 0.7, 0.8, 1.0),
    "wool jumper": (0.8, 0.3, 0.6, 0.0),
    "summer dress": (0.0, 1.0, 0.7, 0.0),
    "ski suit": (1.0, 0.2, 0.4, 0.9),
}
WIDTH = 4


class Query(BaseModel):
    """What is looked for: numbers that are not all 0."""

    vector: list[float] = Field(min_length=WIDTH, max_length=WIDTH)
    top: int = Field(3, ge=1, le=len(CATALOGUE))


class Match(BaseModel):
    """A product and its cosine similarity to the query."""

    name: str
    score: float


class Search:
    """The catalogue in a graph on a context."""

    def __init__(self, context: webnn.MLContext, graph: webnn.MLGraph) -> None:
        self.context, self.graph = context, graph

    @classmethod
    async def on(cls, context: webnn.MLContext) -> Search:
        """Build the graph; other requests are served meanwhile."""
        products = np.array(list(CATALOGUE.values()), np.float32)
        products /= np.linalg.norm(products, axis=1, keepdims=True)
        builder = webnn.MLGraphBuilder(context)
        vector = builder.input("vector", {"data_type": "float32", "shape": [1, WIDTH]})
        length = builder.reduce_l2(vector, axes=[1], keep_dimensions=True)
        scores = vector / length @ builder.constant(np.ascontiguousarray(products.T))
        return cls(context, await builder.build({"scores": scores}))

    async def find(self, query: Query) -> list[Match]:
        """The products that are most like the query."""
        outputs = await self.context.compute_async(self.graph, {"vector": [query.vector]})
        scores = outputs["scores"][0]
        names = list(CATALOGUE)
        best = np.argsort(-scores, kind="stable")[: query.top]
        return [Match(name=names[i], score=float(scores[i])) for i in best]


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """One context for the life of the service."""
    async with await webnn.ml.create_context() as context:
        app.state.search = await Search.on(context)
        yield


app = FastAPI(title="Product search", lifespan=lifespan)


@app.post("/search")
async def search(query: Query, request: Request) -> list[Match]:
    """The catalogue's products in the order of their similarity."""
    finder: Search = request.app.state.search
    return await finder.find(query)


@app.get("/device")
async def device(request: Request) -> dict[str, str]:
    """What the service runs on."""
    finder: Search = request.app.state.search
    return {"device": str(finder.context.device_info)}

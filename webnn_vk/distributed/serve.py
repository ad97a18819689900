"""A model as a deployment of Ray Serve: ``Deployment``. Needs the extra ``ray``."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ray import serve

from .model import RowModel
from .rows import RowError, stacked


class ModelServer:
    """A replica of ``Deployment``: computes requests that arrive within a few milliseconds
    together, by ``@serve.batch``.

    ``model``, ``inputs``, ``outputs`` and ``device`` are as in ``distributed.ray.Predictor``.
    ``max_batch_size`` (rows) and ``batch_wait_timeout_s`` (seconds) are as in ``@serve.batch``.
    A request is one row: {input: value}, by JSON or by a handle's ``predict``; the answer is
    {output: value}. A row that the model can't take fails by RowError, which HTTP answers with the
    status 400, and no other row with it. Serve restarts a replica that lost its device.
    """

    def __init__(
        self, model: Any, inputs: Mapping[str, str] | None = None,
        outputs: Sequence[str] | Mapping[str, str] | None = None, device: str | None = None,
        *, max_batch_size: int = 32, batch_wait_timeout_s: float = 0.005,
    ) -> None:
        self._model = RowModel(model, inputs, outputs, device)
        self._batch.set_max_batch_size(max_batch_size)
        self._batch.set_batch_wait_timeout_s(batch_wait_timeout_s)

    def check_health(self) -> None:
        """RuntimeError once the device is lost: Serve then starts another replica."""
        reason = self._model.lost()
        if reason is not None:
            raise RuntimeError(f"the device of this replica was lost: {reason}")

    async def predict(self, row: Mapping[str, Any]) -> dict[str, np.ndarray]:
        """The outputs of one row. RowError for a row that the model can't take."""
        if not isinstance(row, Mapping):
            raise RowError(f"an object of inputs is expected, not {type(row).__name__}")
        feeds, wrong = self._model.feeds({name: stacked([value]) for name, value in row.items()})
        if wrong:
            raise RowError(wrong[0])
        return await self._batch(feeds)

    async def __call__(self, request: Any) -> Any:
        """The answer to a request by HTTP, as JSON."""
        from starlette.responses import JSONResponse

        try:
            made = await self.predict(await request.json())
        except ValueError as error:  # RowError, and what is no JSON
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({name: array.tolist() for name, array in made.items()})

    @serve.batch
    async def _batch(self, rows: list[Any]) -> list[Any]:
        return await asyncio.to_thread(self._answers, rows)

    def _answers(self, rows: Sequence[Mapping[str, np.ndarray]]) -> list[Any]:
        """The outputs of each row. Rows of equal shapes are computed together."""
        answers: list[Any] = [None] * len(rows)
        groups: dict[Any, list[int]] = {}
        for i, row in enumerate(rows):
            groups.setdefault(tuple(a.shape for a in row.values()), []).append(i)
        for members in groups.values():
            made = self._model.compute({
                name: np.concatenate([rows[i][name] for i in members]) for name in rows[0]
            })
            for place, i in enumerate(members):
                answers[i] = {name: array[place] for name, array in made.items()}
        return answers


#: ``ModelServer`` as a deployment: ``serve.run(Deployment.bind("model.onnx"))``; ``options`` sets
#: replicas and GPUs.
Deployment = serve.deployment(health_check_period_s=5)(ModelServer)

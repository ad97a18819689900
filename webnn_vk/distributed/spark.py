"""A model in Spark: ``make_predict_fn`` for ``predict_batch_udf``. Needs the extra ``spark``."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np


def make_predict_fn(
    model: Any, inputs: Sequence[str] | None = None,
    outputs: Sequence[str] | Mapping[str, str] | None = None, device: str | None = None,
) -> Callable[[], Callable[..., Any]]:
    """The function without arguments that ``pyspark.ml.functions.predict_batch_udf`` takes. In
    each of Spark's Python workers, after its fork, it opens the model on the device that Spark
    assigned to the task.

    ``inputs``: the model's inputs in the order of the columns, by default the model's own order.
    ``model``, ``outputs`` and ``device`` are as in ``distributed.ray.Predictor``. One output
    becomes the column of the UDF, several the fields of a struct with their names. Spark's columns
    are numbers or flat lists: rows of inputs and outputs with more dimensions are flat there. A row
    that the model can't take fails the task by RowError.
    """

    def open_model() -> Callable[..., Any]:
        from .model import RowModel

        opened = RowModel(model, None, outputs, device)
        names = list(opened.inputs) if inputs is None else list(inputs)

        def predict(*columns: np.ndarray) -> Any:
            made = opened.run(
                dict(zip(names, columns, strict=True)), lambda row: f"row {row} of the batch"
            )
            flat = {name: a if a.ndim < 3 else a.reshape(len(a), -1) for name, a in made.items()}
            return flat if len(flat) > 1 else next(iter(flat.values()))

        # Spark counts the parameters.
        predict.__signature__ = inspect.Signature([  # type: ignore[attr-defined]
            inspect.Parameter(f"column{i}", inspect.Parameter.POSITIONAL_ONLY)
            for i in range(len(names))
        ])
        return predict

    return open_model

"""A model in Ray Data: ``Predictor`` for ``Dataset.map_batches``. Needs the extra ``ray``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .model import RowModel
from .rows import from_arrow, to_arrow


class Predictor:
    """A callable class for ``Dataset.map_batches``: each actor opens a context and the model in
    its constructor, on the device that Ray assigned to it, and computes batches of rows. The result
    has the batch's columns that are no inputs, and the model's outputs.

    ``model``: the path of an ONNX file on each node, or the model's bytes. ``inputs``: the columns
    by the model's inputs, for names that differ. ``outputs``: the wanted outputs, or their columns
    by the model's names. ``device``: as in ``Settings``, in place of the assigned one.

    Batches are dicts of arrays (``batch_format="numpy"``) or Arrow tables ("pyarrow"), whose
    columns are taken without a copy where they have the model's type and one length. The first
    dimension of inputs and outputs is the row. On Vulkan there is a graph for each batch size, from
    the cache of saved graphs; smaller batches are padded to a power of two. RowError names the
    first row that the model can't take, and its ``path`` if there is such a column.
    """

    def __init__(
        self, model: Any, inputs: Mapping[str, str] | None = None,
        outputs: Sequence[str] | Mapping[str, str] | None = None, device: str | None = None,
    ) -> None:
        self._model = RowModel(model, inputs, outputs, device)

    def __call__(self, batch: Any) -> Any:
        """The batch with the outputs in place of the inputs, in the batch's format. RowError, and
        the errors of ``MLContext.compute``."""
        is_table = not isinstance(batch, Mapping)
        names = batch.column_names if is_table else [*batch]
        inputs = {*self._model.inputs.values()} & {*names}
        given = {n: from_arrow(batch[n]) for n in inputs} if is_table else batch

        def where(row: int) -> str:
            path = f" ({batch['path'][row]})" if "path" in names else ""
            return f"row {row} of the batch{path}"

        made = self._model.run(given, where)
        kept = [name for name in names if name not in inputs and name not in made]
        if not is_table:
            return {**{name: batch[name] for name in kept}, **made}
        result = batch.select(kept)
        for name, array in made.items():
            result = result.append_column(name, to_arrow(array))
        return result

"""``webnn-vk batch``: a model over many files, by workers of Ray. One part of the input becomes one
Parquet file, written as a whole or not at all: what is there when a run begins is done."""

from __future__ import annotations

import csv
import hashlib
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet

from webnn_vk.distributed.model import RowModel
from webnn_vk.distributed.rows import RowError, from_arrow, to_arrow
from webnn_vk.support import environment
from webnn_vk.support.errors import sanitize

from . import ToolError
from .inputs import IMAGES, ImageScale, image_array
from .models import IMAGE
from .output import emit

#: Readers of Parquet folders leave out what begins so.
_PLAN = "_batch.json"
_SKIPPED = b"webnn_vk.skipped"
#: How many batches of a CSV file or of images are a part, and how many skipped rows are told.
_BATCHES, _TOLD = 16, 20


@dataclass(frozen=True)
class Part:
    """A part of the input: a row group of a Parquet file, bytes of a CSV file, or images. ``first``
    is its first row in the file; ``start``: the row group, or the first byte."""

    files: tuple[str, ...]
    first: int = 0
    start: int = 0
    length: int = 0

    @property
    def is_images(self) -> bool:
        return self.files[0].lower().endswith(IMAGES)

    def place(self, row: int) -> str:
        """The file of a row, and where it is in it, for messages."""
        return self.files[row] if self.is_images else f"{self.files[0]}, row {self.first + row}"


@dataclass(frozen=True)
class Job:
    """The work of all workers. ``columns``: the columns of the model's inputs, several joined to
    one vector; ``rows``: the size of batches."""

    model: str
    out: Path
    columns: dict[str, tuple[str, ...]]
    outputs: tuple[str, ...] | None
    rows: int
    scale: ImageScale
    device: str | None
    skip: bool

    def file(self, number: int) -> Path:
        """The file of a part's results."""
        return self.out / f"part-{number:06}.parquet"


def batch(job: Job, source: Path, workers: int, gpus: float | None, as_json: bool) -> None:
    """Compute the outputs of all rows of ``source`` that ``job.out`` doesn't have yet. ``gpus``: of
    each worker. ``ToolError`` for the first row, or file, that the model can't take."""
    parts = [*_parts(source, _BATCHES * job.rows)]
    if not parts:
        raise ToolError(f"{source}: there are no .parquet, .csv or image files")
    _keep_plan(job, parts)
    left = [i for i in range(len(parts)) if not job.file(i).exists()]
    told = 0
    for row in _run(job, parts, left, workers, gpus) if left else ():
        if row["error"] and (row["fatal"] or not job.skip):
            raise ToolError(
                row["error"] + "; --on-error skip leaves such rows out" * (not row["fatal"])
                + f"; the parts that are done stay in {job.out}"
            )
        for line in row["error"].splitlines()[: 0 if as_json else max(0, _TOLD - told)]:
            told += 1
            print(f"skipped: {line}")
    _report(job, len(parts), len(parts) - len(left), as_json)


def _run(
    job: Job, parts: list[Part], left: list[int], workers: int, gpus: float | None
) -> Iterator[dict[str, Any]]:
    cluster = environment.of_engines().get("RAY_ADDRESS")
    if not cluster:  # Ray of this machine alone: it keeps to the loopback interface
        environment.set_default("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
    import ray

    if not ray.is_initialized():
        local: Any = {"include_dashboard": False, "_node_ip_address": "127.0.0.1"}
        ray.init(cluster or "local", **({} if cluster else local))
    there = ray.cluster_resources()
    largest = max(node["Resources"].get("CPU", 0) for node in ray.nodes() if node["Alive"])
    if gpus is None:
        gpus = 1 if job.device is None and there.get("GPU", 0) >= workers else 0
    rows = ray.data.from_items([{"part": i} for i in left], override_num_blocks=len(left))
    done = rows.map(
        Worker, fn_constructor_args=(job, parts),
        num_cpus=max(1, int(min(there["CPU"] / workers, largest))), num_gpus=gpus,
        compute=ray.data.ActorPoolStrategy(size=workers),
    )
    try:
        yield from done.iter_rows()
    except ray.exceptions.RayError as error:  # a traceback, whose last line says what is wrong
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        raise ToolError(f"a worker failed: {sanitize(lines[-1])}") from error


class Worker:
    """An actor of Ray Data: reads a part, computes it and writes its file."""

    def __init__(self, job: Job, parts: list[Part]) -> None:
        self.job, self.parts = job, parts
        self.model = RowModel(job.model, None, job.outputs, job.device)

    def __call__(self, row: Mapping[str, int]) -> dict[str, Any]:
        """The errors of a part, a line for each row; ``fatal``: of the part as a whole."""
        part = self.parts[row["part"]]
        try:
            return {"error": "\n".join(self._part(part, self.job.file(row["part"]))),
                    "fatal": False}
        except (RowError, pa.ArrowException, OSError, UnicodeDecodeError) as problem:
            return {"error": f"{part.files[0]}: {' '.join(str(problem).split())}", "fatal": True}

    def _part(self, part: Part, target: Path) -> list[str]:
        """Writes the file of a part; what is wrong with rows."""
        if target.exists():  # a worker wrote it and died
            return []
        table, columns, wrong = self._read(part)
        made = []
        rows = np.array([i for i in range(len(table)) if i not in wrong], int)
        for i in range(0, len(rows), self.job.rows):
            some = rows[i : i + self.job.rows]
            feeds, bad = self.model.feeds({n: a[some] for n, a in columns.items()})
            wrong |= {int(some[place]): why for place, why in bad.items()}
            if wrong and not self.job.skip:
                break
            if feeds:
                kept = table.take(np.delete(some, [*bad]))
                for name, array in self.model.compute(feeds).items():
                    kept = kept.append_column(name, to_arrow(array))
                made.append(kept)
        errors = [f"{part.place(row)}: {why}" for row, why in sorted(wrong.items())]
        if errors and not self.job.skip:
            return errors[:1]
        result = pa.concat_tables(made) if made else table.slice(0, 0)
        facts = {**(result.schema.metadata or {}), _SKIPPED: str(len(wrong)).encode()}
        partial = target.with_name(f".{target.name}.{uuid.uuid4().hex}")
        parquet.write_table(result.replace_schema_metadata(facts), partial)
        os.replace(partial, target)
        return errors

    def _read(self, part: Part) -> tuple[Any, dict[str, np.ndarray], dict[int, str]]:
        """A part as an Arrow table, the columns of the model's inputs, and unreadable rows."""
        if part.is_images:
            images, wrong = self._images(part)
            return pa.table({"path": part.files}), images, wrong
        is_csv, columns = part.files[0].endswith(".csv"), {}
        table, wrong = _read_csv(part) if is_csv else (
            parquet.ParquetFile(part.files[0]).read_row_group(part.start), {})
        for wanted in self.model.inputs:
            names = self.job.columns.get(wanted, (wanted,))
            missing = [n for n in names if n not in table.column_names]
            if missing:
                raise RowError(f"there is no column {sanitize(missing[0])!r}; columns: "
                               + ", ".join(map(sanitize, table.column_names)))
            arrays = [from_arrow(table[n]) for n in names]
            if is_csv:
                arrays = [np.array([*map(_number, a)], object) for a in arrays]
            columns[wanted] = arrays[0] if len(arrays) == 1 else np.stack(arrays, axis=1)
        return table, columns, wrong

    def _images(self, part: Part) -> tuple[dict[str, np.ndarray], dict[int, str]]:
        name, kind, declared = self.model.single_input()
        shape = (1, *(d if isinstance(d, int) else IMAGE for d in declared))
        images, wrong = np.zeros((len(part.files), *shape[1:]), kind), {}
        for i, path in enumerate(part.files):
            try:
                images[i] = image_array(Path(path), name, shape, kind, self.job.scale)[0]
            except ToolError as error:
                wrong[i] = str(error)
        return {name: images}, wrong


def _parts(source: Path, rows: int) -> Iterator[Part]:
    """The parts of a file or of all files below a folder, in the order of their names."""
    found = sorted(source.rglob("*")) if source.is_dir() else [source]
    names = [str(path) for path in found if path.is_file()]
    images = [name for name in names if name.lower().endswith(IMAGES)]
    for name in names:
        first = 0
        if name.endswith(".parquet"):
            try:
                described = parquet.ParquetFile(name).metadata
            except pa.ArrowException as error:
                raise ToolError(f"{name}: {error}") from None
            for group in range(described.num_row_groups):
                yield Part((name,), first, group)
                first += described.row_group(group).num_rows
        elif name.endswith(".csv"):
            with open(name, "rb") as file:
                start = len(file.readline())
                # A line is a row; those without text are none.
                while lines := [*islice(filter(bytes.strip, file), rows)]:
                    yield Part((name,), first, start, file.tell() - start)
                    start, first = file.tell(), first + len(lines)
    for i in range(0, len(images), rows):
        yield Part(tuple(images[i : i + rows]), i)


def _read_csv(part: Part) -> tuple[Any, dict[int, str]]:
    """The rows of a part, with all columns as text since other parts could have other types, and
    what is wrong with rows."""
    with open(part.files[0], "rb") as file:
        header = file.readline().decode("utf-8-sig")
        file.seek(part.start)
        lines = file.read(part.length).split(b"\n")
    names = next(csv.reader([header]))
    rows, wrong = [], {}
    for i, line in enumerate(filter(bytes.strip, lines)):
        row = next(csv.reader([line.decode()]))
        if len(row) != len(names):
            wrong[i] = f"{len(row)} values for {len(names)} columns"
            row = [""] * len(names)
        rows.append(row)
    return pa.table(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))), wrong


def _number(text: str) -> float | str:
    for kind in (int, float):
        with suppress(ValueError):
            return kind(text)
    return text


def _keep_plan(job: Job, parts: list[Part]) -> None:
    """Writes down what the files of the folder are made of; ``ToolError`` if that is different from
    what is there."""
    files = sorted({name for part in parts for name in part.files} | {job.model})
    states = [(name, os.stat(name).st_size, os.stat(name).st_mtime_ns) for name in files]
    plan = (states, parts, sorted(job.columns.items()), job.outputs, job.rows, job.scale)
    digest = hashlib.sha256(repr(plan).encode()).hexdigest()
    path = job.out / _PLAN
    job.out.mkdir(parents=True, exist_ok=True)
    if path.exists():
        if json.loads(path.read_text())["plan"] != digest:
            raise ToolError(f"{job.out} has results of other input, another model or other options;"
                            " give another folder")
    elif any(job.out.glob("part-*.parquet")):
        raise ToolError(f"{job.out} has files of another program; give an empty folder")
    else:
        path.write_text(json.dumps({"plan": digest, "parts": len(parts), "model": job.model}))


def _report(job: Job, parts: int, before: int, as_json: bool) -> None:
    described = [parquet.ParquetFile(job.file(i)).metadata for i in range(parts)]
    result = {
        "rows": sum(one.num_rows for one in described),
        "skipped": sum(int(one.metadata.get(_SKIPPED, b"0")) for one in described),
        "files": parts, "files_before": before, "out": str(job.out),
    }
    if as_json:
        emit(result)
    else:
        print("{rows} rows in {files} files in {out}; {files_before} files were there before; "
              "{skipped} rows skipped".format(**result))

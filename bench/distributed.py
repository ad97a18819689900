"""Ray beside a loop written by hand: text embeddings and images over two nodes of Ray on this
machine, with a worker killed twice, each row compared with the loop's; and what an actor costs.

    python -m bench.distributed [ROWS [IMAGES [FILE]]]
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from webnn_vk.distributed.ray import Predictor
from webnn_vk.examples.images import open_image
from webnn_vk.examples.sentence_encoder import Weights, build_encoder, load_model
from webnn_vk.examples.text_reader import ORIENTATION
from webnn_vk.onnx import Session, export
from webnn_vk.tools.devices import open_context

from .table import show

BATCH, TOKENS = 64, 16
#: Of orientation's images: [3, 48, 192].
HEIGHT, WIDTH = 48, 192
_FIGURES = ("seconds", "rate", "actors", "killed")


class Killable:
    """An actor that says which process it is, and that is killed when one of the rows in
    ``folder`` comes first, after it was computed."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        (self.folder / f"actor {os.getpid()}").touch()

    def die(self, keys: Any) -> None:
        for path in self.folder.glob("kill at *"):
            if path.name.removeprefix("kill at ") in {Path(str(key)).name for key in keys}:
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)


class Embed(Killable, Predictor):
    """Texts to embeddings: tokens, then the model."""

    def __init__(self, model: str, folder: str, device: str) -> None:
        Killable.__init__(self, folder)
        Predictor.__init__(self, model, device=device)
        self.tokenizer = _tokenizer()

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        made = super().__call__(_tokenized(self.tokenizer, batch))
        self.die(batch["id"])
        return made


class Classify(Killable, Predictor):
    """Paths of images to what a classifier makes of them."""

    def __init__(self, model: str, folder: str, device: str) -> None:
        Killable.__init__(self, folder)
        Predictor.__init__(self, model, inputs={"x": "image"}, device=device)

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        made = super().__call__({**batch, "image": _images(batch["path"])})
        self.die(batch["path"])
        return made


def _tokenizer() -> Any:
    tokenizer = load_model().tokenizer
    tokenizer.enable_truncation(TOKENS)
    tokenizer.enable_padding(length=TOKENS)
    return tokenizer


def _tokenized(tokenizer: Any, batch: Mapping[str, Any]) -> dict[str, Any]:
    found = tokenizer.encode_batch(list(batch["text"]))
    return {
        "id": batch["id"], "ids": np.array([e.ids for e in found], np.int32),
        "mask": np.array([e.attention_mask for e in found], np.float32),
    }


def _images(paths: Any) -> np.ndarray:
    pixels = [np.asarray(open_image(Path(path)).resize((WIDTH, HEIGHT))) for path in paths]
    return ((np.stack(pixels) / 255 - 0.5) / 0.5).astype(np.float32).transpose(0, 3, 1, 2)


def _write(folder: Path, rows: int, images: int) -> None:
    import pyarrow as pa
    import pyarrow.parquet as parquet
    from PIL import Image

    sentences = Path("examples/sentences.txt").read_text().split()
    generator = np.random.default_rng(26)
    (folder / "texts").mkdir()
    for number, ids in enumerate(np.array_split(np.arange(rows), max(1, rows // 2000))):
        texts = [" ".join(generator.choice(sentences, generator.integers(3, 9))) for _ in ids]
        parquet.write_table(pa.table({"id": ids, "text": texts}),
                            folder / "texts" / f"{number:05}.parquet")
    (folder / "images").mkdir()
    for number in range(images):
        pixels = generator.integers(0, 256, (HEIGHT // 8, WIDTH // 8, 3), np.uint8)
        Image.fromarray(pixels).resize((WIDTH, HEIGHT)).save(
            folder / "images" / f"{number:05}.png")
    context = open_context("cpu")
    weights = Weights(context, load_model())
    weights.upload()
    graph = build_encoder(weights, BATCH, TOKENS).result()
    export(graph, folder / "encoder.onnx")
    context.destroy()


@contextmanager
def _cluster() -> Iterator[Any]:
    """Two nodes on the loopback interface. Of each node's two processors one is its actor's; what
    reads takes the other, in name: the actors have the machine's two."""
    os.environ.update(
        RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled",
        RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # off: the loopback interface
        RAY_worker_niceness="0", RAY_raylet_start_wait_time_s="120",  # as the loop
        PYTHONPATH=os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    )
    import ray
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": 2, "node_ip_address": "127.0.0.1", "include_dashboard": False,
                 "object_store_memory": 1 << 29}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    cluster.add_node(**{k: v for k, v in arguments.items() if k != "include_dashboard"})
    ray.init(address=cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    try:
        yield ray
    finally:
        ray.shutdown()
        cluster.shutdown()


def _by_ray(ray: Any, source: Any, actor: type, arguments: tuple[Any, ...], key: str, output: str,
            workers: int, kills: Sequence[Any] = ()) -> dict[str, Any]:
    """All rows through actors: the outputs by ``key``, seconds of all and from the first row to
    the last, and how many actors there were. ``kills``: rows at which an actor is killed."""
    with tempfile.TemporaryDirectory() as folder:
        data = source.map_batches(
            actor, fn_constructor_args=(arguments[0], folder, *arguments[1:]), batch_size=BATCH,
            num_cpus=1, compute=ray.data.ActorPoolStrategy(size=workers),
        )
        for row in kills:
            Path(folder, f"kill at {row}").touch()
        start, first, done, count, at_first = time.perf_counter(), 0.0, [], 0, 0
        for batch in data.iter_batches(batch_size=None):
            done.append((batch[key], batch[output]))
            count += len(batch[key])
            if not first:
                first, at_first = time.perf_counter(), count
        end = time.perf_counter()
        actors, left = (len([*Path(folder).glob(f"{name} *")]) for name in ("actor", "kill at"))
    return {
        "keys": np.concatenate([k for k, _ in done]),
        "values": np.concatenate([v for _, v in done]), "seconds": end - start,
        "rate": (count - at_first) / max(end - first, 1e-9), "actors": actors,
        "killed": len(kills) - left,
    }


def _loop_texts(folder: Path, model: str, device: str) -> dict[str, Any]:
    """The same by hand: one process, all processors."""
    import pyarrow.dataset as dataset

    session, tokenizer = Session(model, open_context(device)), _tokenizer()
    keys, values, first = [], [], 0.0
    start = time.perf_counter()
    for batch in dataset.dataset(folder / "texts").to_batches(batch_size=BATCH):
        fed = _tokenized(tokenizer, {n: batch[n].to_numpy(False) for n in batch.schema.names})
        count = len(fed["id"])
        padded = {n: np.concatenate([fed[n], np.repeat(fed[n][-1:], BATCH - count, 0)])
                  for n in ("ids", "mask")}
        values.append(session.run(None, padded)[0][:count])
        keys.append(fed["id"])
        first = first or time.perf_counter()
    end = time.perf_counter()
    made = np.concatenate(keys)
    return {"keys": made, "values": np.concatenate(values), "seconds": end - start,
            "rate": (len(made) - BATCH) / (end - first)}


def _loop_images(paths: list[str], model: str, device: str, output: str) -> dict[str, Any]:
    session = Session(model, open_context(device))
    values, first, start = [], 0.0, time.perf_counter()
    for i in range(0, len(paths), BATCH):
        values.append(session.run([output], {"x": _images(paths[i : i + BATCH])})[0])
        first = first or time.perf_counter()
    end = time.perf_counter()
    return {"keys": np.array(paths), "values": np.concatenate(values), "seconds": end - start,
            "rate": (len(paths) - BATCH) / (end - first)}


def _compared(ours: dict[str, Any], loop: dict[str, Any]) -> dict[str, Any]:
    """Rows lost, doubled and different."""
    order, other = np.argsort(ours["keys"]), np.argsort(loop["keys"])
    keys, expected = ours["keys"][order], loop["keys"][other]
    same = len(keys) == len(expected) and bool((keys == expected).all())
    difference = np.abs(ours["values"][order] - loop["values"][other]).max() if same else None
    return {"rows": len(keys), "doubled": len(keys) - len({*keys.tolist()}),
            "lost": len({*expected.tolist()} - {*keys.tolist()}),
            "largest_difference": None if difference is None else float(difference)}


def start_up(model: str, device: str) -> dict[str, float]:
    """Seconds from a new process to its first batch, in parts, and its memory."""
    start = time.perf_counter()
    predictor = Predictor(model, device=device)
    opened = time.perf_counter()
    ids = np.ones((BATCH, TOKENS), np.int32)
    batch = {"ids": ids, "mask": ids.astype(np.float32)}
    predictor(batch)
    first = time.perf_counter()
    predictor(batch)
    end = time.perf_counter()
    # Not getrusage: a process begins there with what the one that started it had.
    status = Path("/proc/self/status").read_text()
    memory = int(status.split("VmHWM:")[1].split()[0]) / 1024
    return {"open": opened - start, "first_batch": first - opened, "batch": end - first,
            "MiB": memory}


def _started(model: str, device: str, cache: Path) -> dict[str, float]:
    code = ("import json, sys, bench.distributed as d; "
            "print(json.dumps(d.start_up(sys.argv[1], sys.argv[2])))")
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", code, model, device], check=True, text=True,
                          stdout=subprocess.PIPE, env={**os.environ, "WEBNN_VK_CACHE": str(cache)})
    return {**json.loads(done.stdout.splitlines()[-1]), "process": time.perf_counter() - start}


def main(device: str, rows: int, images: int, file: Path | None) -> None:
    """Measure; everything into ``file``."""
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, rows, images)
        model, classifier = str(folder / "encoder.onnx"), str(ORIENTATION.path())
        paths = sorted(str(path) for path in (folder / "images").iterdir())
        output = Session(classifier, open_context("cpu")).get_outputs()[0].name
        for kind in (device, "vulkan"):
            for state in ("cold", "warm"):
                found[f"actor, {kind}, {state}"] = _started(model, kind, folder / "cache")
        loop = _loop_texts(folder, model, device)
        loops = _loop_images(paths, classifier, device, output)
        found["loop"] = {"texts/s": loop["rate"], "images/s": loops["rate"]}
        with _cluster() as ray:
            texts = ray.data.read_parquet(str(folder / "texts"))
            found["bytes per row of text"] = texts.materialize().size_bytes() / rows
            for workers, kills in ((1, ()), (2, ()), (2, (rows // 3, rows * 2 // 3))):
                made = _by_ray(ray, texts, Embed, (model, device), "id", "embeddings", workers,
                               kills)
                found[f"texts, {workers} workers, {len(kills)} kills"] = {
                    **_compared(made, loop), **{k: made[k] for k in _FIGURES}}
            items = ray.data.from_items([{"path": path} for path in paths])
            kills = [Path(paths[len(paths) * n // 3]).name for n in (1, 2)]
            made = _by_ray(ray, items, Classify, (classifier, device), "path", output, 2, kills)
            found["images, 2 workers, 2 kills"] = {
                **_compared(made, loops), **{k: made[k] for k in _FIGURES}}
        again = _loop_texts(folder, model, device)
        found["loop again"] = {"texts/s": again["rate"]}
    if file is not None:
        file.write_text(json.dumps(found, indent=1) + "\n")
    show(("what", "figures"), [(name, json.dumps(value)) for name, value in found.items()])


if __name__ == "__main__":
    given = [*sys.argv[1:], *("20000", "5000", "")[len(sys.argv) - 1 :]]
    # Actors load the class from the module, by name.
    from bench.distributed import main as run

    run("cpu", int(given[0]), int(given[1]), Path(given[2]) if given[2] else None)

"""Ray beside a loop written by hand, on the same processors: text embeddings and images over two
nodes of Ray on this machine.

    python -m bench.distributed [ROWS [IMAGES [FILE [ROUNDS]]]]

First the loop and actors take the same rows in turn, ``ROUNDS`` times. A rate counts rows from
the beginning of the first batch to the end of the last; the start of processes, and of Ray, comes
before it and has a figure of its own. Then Ray computes all ``ROWS`` and ``IMAGES`` with actors
that are killed twice, the loop computes them too, and each row is compared. At the end, what an
actor costs.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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
#: Rows of a file, which is a block of Ray's; rows and images that are taken in turn.
BLOCK, TEXTS_IN_TURN, IMAGES_IN_TURN = 640, 2560, 640
#: Of orientation's images: [3, 48, 192].
HEIGHT, WIDTH = 48, 192
#: The processors of this machine that are used.
CORES = 2
Result = dict[str, Any]


class Watched:
    """An actor that writes down when its batches began and ended, and that is killed when one of
    the rows in ``folder`` comes first, after it was computed."""

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.log = (self.folder / f"actor {os.getpid()}").open("w", buffering=1)

    def computed(self, began: tuple[float, float], keys: Any) -> None:
        span = (*began, time.perf_counter(), time.process_time())
        self.log.write(json.dumps(span) + "\n")
        for path in self.folder.glob("kill at *"):
            if path.name.removeprefix("kill at ") in {Path(str(key)).name for key in keys}:
                path.unlink()
                os.kill(os.getpid(), signal.SIGKILL)


class Embed(Watched, Predictor):
    """Texts to embeddings: tokens, then the model."""

    def __init__(self, model: str, folder: str, device: str) -> None:
        Watched.__init__(self, folder)
        Predictor.__init__(self, model, device=device)
        self.tokenizer = _tokenizer()

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        began = time.perf_counter(), time.process_time()
        made = super().__call__(_tokenized(self.tokenizer, batch))
        self.computed(began, batch["id"])
        return made


class Classify(Watched, Predictor):
    """Paths of images to what a classifier makes of them."""

    def __init__(self, model: str, folder: str, device: str) -> None:
        Watched.__init__(self, folder)
        Predictor.__init__(self, model, inputs={"x": "image"}, device=device)

    def __call__(self, batch: Mapping[str, Any]) -> Mapping[str, Any]:
        began = time.perf_counter(), time.process_time()
        made = super().__call__({**batch, "image": _images(batch["path"])})
        self.computed(began, batch["path"])
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
    for number, ids in enumerate(np.array_split(np.arange(rows), max(1, rows // BLOCK))):
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
        RAY_worker_niceness="0", RAY_raylet_start_wait_time_s="300",  # as the loop
        PYTHONPATH=os.pathsep.join([os.getcwd(), os.environ.get("PYTHONPATH", "")]),
    )
    import ray
    from ray.cluster_utils import Cluster

    arguments = {"num_cpus": 2, "node_ip_address": "127.0.0.1", "include_dashboard": False,
                 "object_store_memory": 1 << 29}
    cluster = Cluster(initialize_head=True, head_node_args=arguments)
    cluster.add_node(**{k: v for k, v in arguments.items() if k != "include_dashboard"})
    ray.init(address=cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False)
    context = ray.data.DataContext.get_current()
    context.enable_progress_bars = False
    context.wait_for_min_actors_s = 300  # all actors begin together
    try:
        yield ray
    finally:
        ray.shutdown()
        cluster.shutdown()


def _by_ray(source: Any, actor: type, arguments: tuple[Any, ...], key: str, output: str,
            workers: int, kills: Sequence[Any] = ()) -> Result:
    """All rows through actors. ``kills``: rows at which an actor is killed."""
    from ray.data import ActorPoolStrategy

    with tempfile.TemporaryDirectory() as folder:
        data = source.map_batches(
            actor, fn_constructor_args=(arguments[0], folder, *arguments[1:]), batch_size=BATCH,
            num_cpus=min(1, CORES / workers), compute=ActorPoolStrategy(size=workers),
        )
        for row in kills:
            Path(folder, f"kill at {row}").touch()
        start = time.perf_counter()
        with _watched() as used:
            done = [(batch[key], batch[output]) for batch in data.iter_batches(batch_size=None)]
        logs = {int(path.name.split()[1]): [*map(json.loads, path.read_text().splitlines())]
                for path in Path(folder).glob("actor *")}
        left = len([*Path(folder).glob("kill at *")])
    spans = [span for log in logs.values() for span in log]
    first, last = min(span[0] for span in spans), max(span[2] for span in spans)
    # What Ray itself takes from the first batch to the last, within a second.
    before = [seconds for at, seconds in used if at <= first][-1]
    after = next(seconds for at, seconds in used if at >= last)
    of_ray = sum(seconds - before.get(pid, 0) for pid, seconds in after.items()
                 if pid not in logs)
    keys = np.concatenate([k for k, _ in done])
    return {
        "keys": keys, "values": np.concatenate([v for _, v in done]), "start_up": first - start,
        "seconds": last - first, "rate": len(keys) / (last - first),
        "in_batches": sum(span[2] - span[0] for span in spans) / (last - first) / workers,
        "processor": sum(span[3] - span[1] for span in spans), "processor_of_ray": of_ray,
        "actors": len(logs), "killed": len(kills) - left,
    }


@contextmanager
def _watched() -> Iterator[list[tuple[float, dict[int, float]]]]:
    """The results of ``_processor_time`` each second, and at the end."""
    found, ended = [], threading.Event()

    def look() -> None:
        found.append((time.perf_counter(), _processor_time()))
        while not ended.wait(1):
            found.append((time.perf_counter(), _processor_time()))

    watching = threading.Thread(target=look)
    watching.start()
    try:
        yield found
    finally:
        ended.set()
        watching.join()
    found.append((time.perf_counter(), _processor_time()))


def _processor_time() -> dict[int, float]:
    """Seconds of processor time of this process and those below it, by their numbers."""
    found, parents = {}, {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended
            pid, fields = int(path.parent.name), path.read_text().rpartition(")")[2].split()
            parents[pid] = int(fields[1])
            found[pid] = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def is_below(pid: int) -> bool:
        while pid not in (0, os.getpid()):
            pid = parents.get(pid, 0)
        return pid != 0

    return {pid: seconds for pid, seconds in found.items() if is_below(pid)}


def _loop(batches: Iterator[tuple[Any, Callable[[], Mapping[str, Any]]]], model: str, device: str,
          output: str) -> Result:
    """The same by hand: one process, all processors. ``batches``: keys, and what makes inputs."""
    session = Session(model, open_context(device))
    keys, values, used = [], [], time.process_time()
    start = time.perf_counter()
    for some, feeds in batches:
        values.append(session.run([output], feeds())[0][: len(some)])
        keys.append(some)
    seconds = time.perf_counter() - start
    made = np.concatenate(keys)
    return {"keys": made, "values": np.concatenate(values), "seconds": seconds,
            "rate": len(made) / seconds, "processor": time.process_time() - used}


def _loop_texts(files: Sequence[str], model: str, device: str) -> Result:
    import pyarrow.dataset as dataset

    tokenizer = _tokenizer()

    def inputs(rows: Any) -> Mapping[str, Any]:
        fed = _tokenized(tokenizer, {n: rows[n].to_numpy(False) for n in rows.schema.names})
        return {n: np.concatenate([fed[n], np.repeat(fed[n][-1:], BATCH - len(rows), 0)])
                for n in ("ids", "mask")}

    batches = dataset.dataset(files).to_batches(batch_size=BATCH)
    return _loop(((rows["id"].to_numpy(), lambda rows=rows: inputs(rows)) for rows in batches),
                 model, device, "embeddings")


def _loop_images(paths: Sequence[str], model: str, device: str, output: str) -> Result:
    parts = (paths[i : i + BATCH] for i in range(0, len(paths), BATCH))
    return _loop(((np.array(part), lambda part=part: {"x": _images(part)}) for part in parts),
                 model, device, output)


def _compared(ours: Result, loop: Result) -> Result:
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


def _in_turn(loop: Callable[[], Result], by_ray: Callable[[int], Result], counts: Sequence[int],
             rounds: int) -> Result:
    """The loop and Ray in turn: medians of the rates, and of the ratios within a round."""
    turns: list[dict[int, Result]] = [
        {0: loop(), **{workers: by_ray(workers) for workers in counts}} for _ in range(rounds)]
    found: Result = {"rates": [[round(one["rate"]) for one in turn.values()] for turn in turns]}
    for workers in (0, *counts):
        of = [turn[workers] for turn in turns]
        found[f"{workers} workers" if workers else "loop"] = _figures({
            name: statistics.median(one[name] for one in of) for name in of[0] if name in _MEDIANS
        } | {
            "to the loop": statistics.median(
                turn[workers]["rate"] / turn[0]["rate"] for turn in turns),
            "to the loop, by processor time": statistics.median(
                turn[0]["processor"] / _all(turn[workers]) for turn in turns),
        })
    return found


def _all(one: Result) -> float:
    return one["processor"] + one.get("processor_of_ray", 0)


def _figures(one: Result) -> Result:
    return {name: float(f"{value:.4g}") for name, value in one.items()
            if isinstance(value, (int, float))}


_MEDIANS = ("rate", "start_up", "in_batches", "processor", "processor_of_ray")


def main(device: str, rows: int, images: int, file: Path | None, rounds: int) -> None:
    """Measure; everything into ``file``."""
    found: Result = {}

    def add(what: str, figures: Any) -> None:
        found[what] = figures
        if file is not None:  # what there is, should this be stopped
            file.write_text(json.dumps(found, indent=1) + "\n")

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _write(folder, rows, images)
        model, classifier = str(folder / "encoder.onnx"), str(ORIENTATION.path())
        texts, paths = (sorted(str(path) for path in (folder / kind).iterdir())
                        for kind in ("texts", "images"))
        output = Session(classifier, open_context("cpu")).get_outputs()[0].name
        with _cluster() as ray:
            def embedded(files: Sequence[str], *run: Any) -> Result:
                # Rows of text are small: Ray would put them all into one block, for one actor.
                source = ray.data.read_parquet(files).repartition(target_num_rows_per_block=BLOCK)
                return _by_ray(source, Embed, (model, device), "id", "embeddings", *run)

            def classified(some: Sequence[str], *run: Any) -> Result:
                source = ray.data.from_items([{"path": path} for path in some],
                                             override_num_blocks=-(-len(some) // BATCH))
                return _by_ray(source, Classify, (classifier, device), "path", output, *run)

            if rounds:
                some, few = texts[: -(-TEXTS_IN_TURN // BLOCK)], paths[:IMAGES_IN_TURN]
                add("texts in turn", _in_turn(
                    lambda: _loop_texts(some, model, device),
                    lambda workers: embedded(some, workers), (1, 2, 4), rounds))
                add("images in turn", _in_turn(
                    lambda: _loop_images(few, classifier, device, output),
                    lambda workers: classified(few, workers), (1, 2, 4), rounds))
                source = ray.data.read_parquet(some).materialize()
                add("bytes per row of text", source.size_bytes() / source.count())
            made = embedded(texts, CORES, (rows // 3, rows * 2 // 3))
            loop = _loop_texts(texts, model, device)
            add("texts, 2 kills", {
                **_compared(made, loop), **_figures(made), "loop": _figures(loop)})
            kills = [Path(paths[images * n // 3]).name for n in (1, 2)]
            made = classified(paths, CORES, kills)
            loop = _loop_images(paths, classifier, device, output)
            add("images, 2 kills", {
                **_compared(made, loop), **_figures(made), "loop": _figures(loop)})
        for kind in (device, "vulkan"):
            for state in ("cold", "warm"):
                add(f"actor, {kind}, {state}", _started(model, kind, folder / "cache"))
    show(("what", "figures"), [(name, json.dumps(value)) for name, value in found.items()])


if __name__ == "__main__":
    given = [*sys.argv[1:], *("20000", "5000", "", "3")[len(sys.argv) - 1 :]]
    # Actors load the class from the module, by name.
    from bench.distributed import main as run

    run("cpu", int(given[0]), int(given[1]), Path(given[2]) if given[2] else None, int(given[3]))

"""The library in Ray, in a process of its own: `ray_child.py FOLDER` writes the results
of each part into result.json. Two nodes, on the loopback interface."""

import contextlib
import io
import json
import os
import signal
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

os.environ.update(
    RAY_USAGE_STATS_ENABLED="0", RAY_AUTH_MODE="disabled", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",
    RAY_worker_niceness="0", RAY_enable_worker_prestart="0", RAY_prestart_worker_first_driver="0",
    RAY_raylet_start_wait_time_s="300",
)
import numpy as np
import pyarrow as pa
import pyarrow.parquet as parquet
import ray
from ray import serve
from ray.cluster_utils import Cluster

from tests.support.commands import blocks
from tests.support.paths import ROOT
from tests.support.trained import kinds_of_files
from webnn_vk.distributed.ray import Predictor
from webnn_vk.distributed.serve import Deployment, ModelServer
from webnn_vk.examples import ray_service
from webnn_vk.tools.cli import main

FOLDER = Path(sys.argv[1])
MODEL = str(FOLDER / "model.onnx")
ROWS = 600


class Killed(Predictor):
    """Says which process it is. The first actor that has row 200 is killed, as is the first that
    has row 400, after it computed them."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        (FOLDER / "actors" / str(os.getpid())).touch()

    def __call__(self, batch):
        made = super().__call__(batch)
        for row in {200, 400} & {*batch["id"].to_pylist()}:
            killed = FOLDER / f"killed at {row}"
            if not killed.exists():
                killed.touch()
                os.kill(os.getpid(), signal.SIGKILL)
        return made


def data():
    """All rows by two actors; an actor is killed twice."""
    (FOLDER / "actors").mkdir()
    rows = ray.data.read_parquet(str(FOLDER / "rows")).map_batches(
        Killed, fn_constructor_kwargs={"model": MODEL, "device": "cpu"}, batch_size=7, num_cpus=0.5,
        batch_format="pyarrow",
        compute=ray.data.ActorPoolStrategy(size=2))
    found, doubled = {}, 0
    for row in rows.iter_rows():
        doubled += row["id"] in found
        found[int(row["id"])] = [*map(float, row["y"])]
    actors, killed = len([*(FOLDER / "actors").iterdir()]), len([*FOLDER.glob("killed at *")])
    return {"y": [found.get(i) for i in range(ROWS)], "doubled": doubled, "actors": actors,
            "killed": killed}


class Opened:
    """An actor's device."""

    def device(self):
        return Predictor(MODEL)._model.context.device_info

    def uuid(self):
        time.sleep(0.1)
        return self.device().uuid

    def name(self):
        return self.device().name, os.environ.get("OMP_NUM_THREADS")


def devices():
    """The UUIDs of two actors with a GPU each, the device of one without, and the error of one
    whose GPU has no Vulkan device."""
    actor = ray.remote(Opened)
    pretends = {"env_vars": {"WEBNN_VK_DRIVER": "null", "WEBNN_VK_NULL_DEVICES": "2"}}
    pair = [actor.options(num_gpus=1, num_cpus=0.5, runtime_env=pretends).remote()
            for _ in range(2)]
    uuids = ray.get([one.uuid.remote() for one in pair])
    for one in pair:
        ray.kill(one)
    plain = actor.options(num_cpus=1).remote()
    name, threads = ray.get(plain.name.remote())
    lacking = actor.options(num_gpus=1, num_cpus=0.5, runtime_env={"env_vars": {
        "WEBNN_VK_DRIVER": "null", "WEBNN_VK_NULL_DEVICES": "2",
        "CUDA_VISIBLE_DEVICES": "GPU-00000000-0000-0000-0000-000000000001"}}).remote()
    try:
        error = ray.get(lacking.uuid.remote())
    except ray.exceptions.RayTaskError as raised:
        error = str(raised.cause)
    for one in (plain, lacking):
        ray.kill(one)
    return {"uuids": sorted(uuids), "name": name, "threads": threads, "error": error}


class Fragile(ModelServer):
    """A replica whose device can be lost."""

    def lose(self):
        self._model.context.destroy()

    def process(self):
        return os.getpid()


def ask(row, path=""):
    body = row if isinstance(row, bytes) else json.dumps(row).encode()
    request = urllib.request.Request(f"http://127.0.0.1:8265/{path}", body)
    try:
        with urllib.request.urlopen(request, timeout=300) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        return error.code, json.load(error)


def service():
    serve.start(http_options={"host": "127.0.0.1", "port": 8265}, proxy_location="HeadOnly")
    options = {"ray_actor_options": {"num_cpus": 0.5}}
    serve.run(Deployment.options(**options).bind(MODEL, device="cpu"))
    found = {"answer": ask({"x": [1, 2, 3, 4]}), "bad": ask({"x": [1, 2, 3]}),
             "none": ask({"y": 1}), "no object": ask([1])}
    fragile = serve.deployment(Fragile, **options, health_check_period_s=0.5)
    handle = serve.run(fragile.bind(MODEL, device="cpu"), name="fragile", route_prefix="/fragile")
    answers = [handle.predict.remote({"x": [i, 0, 0, 0]}) for i in range(20)]
    mixed = [handle.predict.remote({"x": [1] * n}) for n in (4, 3)]
    found["many"] = [answer.result()["y"].tolist() for answer in answers]
    found["beside a bad one"] = mixed[0].result()["y"].tolist()
    before = handle.process.remote().result()
    handle.lose.remote().result()
    while True:  # the child's own limit ends it
        try:
            if handle.process.remote().result(timeout_s=60) != before:
                break
        except Exception:  # while there is no replica
            pass
        time.sleep(0.2)
    serve.run(ray_service.Deployment.bind("cpu"), name="files", route_prefix="/files")
    found["files"] = {label: ask(data, "files") for label, data in kinds_of_files().items()}
    found["restarted"] = handle.process.remote().result() != before
    found["afterwards"] = handle.predict.remote({"x": [1, 0, 0, 0]}).result()["y"].tolist()
    serve.shutdown()
    return found


def printed(out):
    """The printed text, without Ray's warnings of slow starts and of workers that were killed."""
    return "".join(line for line in out.getvalue().splitlines(True) if "(raylet)" not in line)


def page():
    """The snippets of docs/distributed.md, in this folder; what the last two print."""
    found, names = [], {}
    del os.environ["CUDA_VISIBLE_DEVICES"]
    for code in blocks(ROOT / "docs" / "distributed.md", "python")[:3]:
        with contextlib.redirect_stdout(io.StringIO()) as out:
            exec(code, names)
        found.append(printed(out))
    serve.shutdown()
    return {"printed": found[1:], "device": str(names["context"].device_info)}


def command():
    out = FOLDER / "out"
    status = main(["batch", MODEL, str(FOLDER / "rows"), str(out), "--workers", "2", "--device",
                   "cpu", "--batch-size", "16", "--json"])
    rows = parquet.read_table(out).to_pylist()
    # As after a run that was ended: the parts whose files are there aren't computed again.
    files = {path: path.stat().st_mtime_ns for path in sorted(out.glob("*.parquet"))}
    missing = [*files][1]
    missing.unlink()
    with contextlib.redirect_stdout(io.StringIO()) as told:
        again = main(["batch", MODEL, str(FOLDER / "rows"), str(out), "--workers", "2", "--device",
                      "cpu", "--batch-size", "16", "--json"])
    changed = [path for path, time in files.items() if path.stat().st_mtime_ns != time]
    restarted = {"again": again, "changed": changed == [missing],
                 "same": parquet.read_table(out).to_pylist() == rows, **json.loads(printed(told))}
    parquet.write_table(pa.table({"id": [1], "z": [[1.0, 2, 3, 4]]}), FOLDER / "other.parquet")
    wrong = main(["batch", MODEL, str(FOLDER / "other.parquet"), str(FOLDER / "out2"), "--device",
                  "cpu"])
    return {"status": status, "wrong": wrong, "restarted": restarted,
            "rows": sorted((r["id"], r["y"]) for r in rows)}


def run():
    # As Ray finds GPUs: by the mask of the process that starts it.
    uuids = [f"GPU-7765626e-6e5f-766b-206e-756c6c20300{i}" for i in range(2)]
    os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(uuids)
    node = {"num_cpus": 2, "node_ip_address": "127.0.0.1", "object_store_memory": 100 << 20}
    cluster = Cluster(initialize_head=True, head_node_args={
        **node, "num_gpus": 2, "include_dashboard": False})
    cluster.add_node(**node)
    ray.init(address=cluster.address, _node_ip_address="127.0.0.1", log_to_driver=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    found = {}
    try:
        for part in (devices, data, command, page, service):
            found[part.__name__] = part()
        found["address"] = [n["NodeManagerAddress"] for n in ray.nodes()]
    finally:
        (FOLDER / "result.json").write_text(json.dumps(found, default=str))
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    np.seterr(all="raise")
    run()

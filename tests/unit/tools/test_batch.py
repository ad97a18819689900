"""``webnn-vk batch`` without Ray: parts of the input, what a worker makes of one, bad rows."""

import os
from types import MappingProxyType

import numpy as np
import pytest
from onnx import helper, save

from tests.support.discriminating import assert_allclose
from tests.support.onnx_models import info, model
from webnn_vk.tools import ToolError
from webnn_vk.tools.inputs import ImageScale

pa = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")
module = pytest.importorskip("webnn_vk.tools.batch")
Job, Part, Worker = module.Job, module.Part, module.Worker

X = np.random.default_rng(26).standard_normal((50, 4)).astype(np.float32)


@pytest.fixture
def job(tmp_path):
    """y = 2 x, in batches of 8 rows."""
    doubled = model([helper.make_node("Add", ["x", "x"], ["y"])], [info("x", ["n", 4])],
                    [info("y", ["n", 4])], {})
    save(doubled, tmp_path / "model.onnx")
    return make_job(tmp_path)


def make_job(folder, **changes):
    (folder / "out").mkdir(exist_ok=True)
    given = {"columns": {}, "outputs": None, "rows": 8, "scale": ImageScale(), "device": "cpu",
             "skip": False, **changes}
    return Job(str(folder / "model.onnx"), folder / "out", **given)


def run(job, source):
    """All parts by one worker: their errors, and the rows of the results."""
    parts = [*module._parts(source, 20)]
    worker = Worker(job, parts)
    rows = [worker({"part": i}) for i in range(len(parts))]
    found = {key: [row[key] for row in rows] for key in ("error", "fatal")}
    tables = [parquet.read_table(job.file(i)) for i in range(len(parts)) if job.file(i).exists()]
    return parts, found, pa.concat_tables(tables) if tables else None


def write_parquet(path, x=X, **columns):
    table = pa.table({"id": range(len(x)), "x": pa.array(list(x)), **columns})
    parquet.write_table(table, path, row_group_size=20)


def write_csv(path, changes=MappingProxyType({})):
    lines = [",".join([str(i), *map(repr, map(float, row))]) for i, row in enumerate(X)]
    for number, text in changes.items():
        lines[number] = text
    path.write_text("\n".join(["id,a,b,c,d", *lines]))  # without a last newline


COLUMNS = {"x": ("a", "b", "c", "d")}


def test_parquet(job, tmp_path):
    write_parquet(tmp_path / "in.parquet")
    parts, found, table = run(job, tmp_path / "in.parquet")
    assert [(p.start, p.first) for p in parts] == [(0, 0), (1, 20), (2, 40)]
    assert found == {"error": [""] * 3, "fatal": [False] * 3}
    assert table.column_names == ["id", "x", "y"]
    np.testing.assert_array_equal(np.array(table["y"].to_pylist(), np.float32), X * 2)
    # What is there is not computed again.
    before = os.stat(job.file(1)).st_mtime_ns
    job.file(2).unlink()
    run(job, tmp_path / "in.parquet")
    assert os.stat(job.file(1)).st_mtime_ns == before and job.file(2).exists()
    assert not [p for p in job.out.iterdir() if p.name.startswith(".")]


def test_csv(job, tmp_path):
    write_csv(tmp_path / "in.csv")
    job = make_job(tmp_path, columns=COLUMNS)
    parts, found, table = run(job, tmp_path / "in.csv")
    assert [p.first for p in parts] == [0, 20, 40] and not any(found["error"])
    assert table["id"].to_pylist() == [str(i) for i in range(50)]
    np.testing.assert_array_equal(np.array(table["y"].to_pylist(), np.float32), X * 2)


def test_rows_of_csv_that_do_not_fit(job, tmp_path):
    write_csv(tmp_path / "in.csv", {7: "7,1,zwei,3,4", 23: "23,1,,3,4"})
    job = make_job(tmp_path, columns=COLUMNS)
    parts, found, _ = run(job, tmp_path / "in.csv")
    assert found["error"][0] == (
        f"{tmp_path}/in.csv, row 7: column 'x': ['1', 'zwei', '3', '4'] are not all numbers; "
        "float32[4] is expected")
    assert "in.csv, row 23: column 'x': ['1', '', '3', '4'] are" in found["error"][1]
    assert [job.file(i).exists() for i in range(3)] == [False, False, True]
    job = make_job(tmp_path, columns=COLUMNS, skip=True)
    parts, found, table = run(job, tmp_path / "in.csv")
    kept = [i for i in range(50) if i not in (7, 23)]
    assert table["id"].to_pylist() == [str(i) for i in kept]
    np.testing.assert_array_equal(np.array(table["y"].to_pylist(), np.float32), X[kept] * 2)
    module._report(job, 3, 0, as_json=False)


def test_rows_of_csv_with_other_numbers_of_values(job, tmp_path):
    """Each is named; empty lines are no rows, wherever they are."""
    changes = {3: '3,1,"2,3,4', 21: "21,1,2,3,4\r\n  \n", 30: "30,1,2", 49: "49,1,2,3,4,5\n\n"}
    write_csv(tmp_path / "in.csv", changes)
    _, found, _ = run(make_job(tmp_path, columns=COLUMNS), tmp_path / "in.csv")
    assert found["error"] == [
        f"{tmp_path}/in.csv, row {row}: {values} values for 5 columns"
        for row, values in ((3, 3), (30, 3), (49, 6))
    ] and not any(found["fatal"])
    job = make_job(tmp_path, columns=COLUMNS, skip=True)
    _, _, table = run(job, tmp_path / "in.csv")
    kept = [i for i in range(50) if i not in (3, 30, 49)]
    assert table["id"].to_pylist() == [str(i) for i in kept]
    expected = np.where(np.array(kept)[:, None] == 21, [1, 2, 3, 4], X[kept]) * 2
    np.testing.assert_array_equal(np.array(table["y"].to_pylist()), expected.astype(np.float32))


def test_the_report_counts_what_was_skipped_in_all_runs(job, tmp_path, capsys):
    write_csv(tmp_path / "in.csv", {7: "7,1,zwei,3,4", 23: "23,1,,3,4", 24: "24,1,2,3,4,5"[:-2]})
    run(make_job(tmp_path, columns=COLUMNS, skip=True), tmp_path / "in.csv")
    module._report(job, 3, 1, as_json=False)
    assert capsys.readouterr().out == (
        f"48 rows in 3 files in {tmp_path}/out; 1 files were there before; 2 rows skipped\n")


@pytest.mark.parametrize("skip", [False, True])
def test_files_that_do_not_fit_are_an_error_in_any_case(job, tmp_path, skip):
    job = make_job(tmp_path, skip=skip)
    write_csv(tmp_path / "in.csv")
    _, found, table = run(job, tmp_path / "in.csv")
    assert all(found["fatal"]) and table is None
    assert found["error"][0] == f"{tmp_path}/in.csv: there is no column 'x'; columns: " \
                                "id, a, b, c, d"
    (tmp_path / "in.csv").write_bytes(b"a,b,c,d\n1,2,3,\xff\n")
    _, found, _ = run(make_job(tmp_path, columns=COLUMNS, skip=skip), tmp_path / "in.csv")
    assert found["fatal"] == [True] and "in.csv: 'utf-8' codec can't" in found["error"][0]
    (tmp_path / "bad.parquet").write_bytes(b"PAR1 no")
    with pytest.raises(ToolError, match="bad.parquet: "):
        [*module._parts(tmp_path / "bad.parquet", 20)]


def test_images(tmp_path):
    image = pytest.importorskip("PIL.Image")
    negative = model([helper.make_node("Neg", ["x"], ["y"])],
                     [info("x", ["n", 3, 8, 8])], [info("y", ["n", 3, 8, 8])],
                     {})
    save(negative, tmp_path / "model.onnx")
    (tmp_path / "photos" / "more").mkdir(parents=True)
    pixels = np.random.default_rng(1).integers(0, 256, (5, 8, 8, 3), np.uint8)
    names = ["a.png", "b.PNG", "c.png", "more/d.png", "notes.txt", "e.png"]
    for name, plane in zip(names, [*pixels[:4], None, pixels[4]], strict=True):
        if plane is None:
            (tmp_path / "photos" / name).write_text("no image")
        else:
            image.fromarray(plane).save(tmp_path / "photos" / name)
    (tmp_path / "photos" / "c.png").write_bytes(b"broken")
    job = make_job(tmp_path, scale=ImageScale((0.5,), (0.5,)))
    _, found, table = run(job, tmp_path / "photos")
    assert found["error"] == [f"{tmp_path}/photos/c.png: {tmp_path}/photos/c.png is not an image "
                              "that can be read"] and table is None
    _, found, table = run(make_job(tmp_path, scale=job.scale, skip=True), tmp_path / "photos")
    expected = {"a.png": 0, "b.PNG": 1, "e.png": 4, "more/d.png": 3}
    assert table["path"].to_pylist() == [f"{tmp_path}/photos/{name}" for name in expected]
    planes = pixels[list(expected.values())].transpose(0, 3, 1, 2)
    made = table["y"].combine_chunks().to_numpy_ndarray()
    assert_allclose(made, -(planes / 255 - 0.5) / 0.5, rtol=1e-5, atol=1e-6)


def test_a_folder_with_other_results_is_refused(job, tmp_path):
    write_csv(tmp_path / "in.csv")
    parts = [Part((str(tmp_path / "in.csv"),))]
    module._keep_plan(job, parts)
    module._keep_plan(make_job(tmp_path, device="vulkan", skip=True), parts)
    for changed, those in ((make_job(tmp_path, rows=9), parts), (job, [*parts, *parts]),
                           (make_job(tmp_path, outputs=("y",)), parts)):
        with pytest.raises(ToolError, match="has results of other input, another model or other"):
            module._keep_plan(changed, those)
    write_csv(tmp_path / "in.csv", {1: "1,2,3,4,5"})
    with pytest.raises(ToolError, match="has results of other input"):
        module._keep_plan(job, parts)
    (job.out / "_batch.json").unlink()
    job.file(0).touch()
    with pytest.raises(ToolError, match="has files of another program"):
        module._keep_plan(job, parts)

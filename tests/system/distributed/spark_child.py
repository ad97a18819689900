"""The library in Spark, in a process of its own: `spark_child.py FOLDER` writes
result.json. Local Spark, on the loopback interface."""

import contextlib
import io
import json
import sys
from pathlib import Path

from pyspark.ml.functions import predict_batch_udf
from pyspark.sql import SparkSession
from pyspark.sql.types import ArrayType, FloatType, StructField, StructType

from tests.support.commands import blocks
from tests.support.paths import ROOT
from webnn_vk.distributed.spark import make_predict_fn

FOLDER = Path(sys.argv[1])
VECTOR = ArrayType(FloatType())


def run():
    spark = (
        SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1").config("spark.driver.host", "127.0.0.1")
        .config("spark.sql.shuffle.partitions", "2").getOrCreate())
    rows = spark.read.parquet(str(FOLDER / "rows"))
    one = predict_batch_udf(make_predict_fn(str(FOLDER / "model.onnx"), device="cpu"),
                            return_type=VECTOR, batch_size=32, input_tensor_shapes=[[4]])
    found = {"y": [list(r.y) for r in rows.withColumn("y", one("x")).orderBy("id").collect()]}
    both = predict_batch_udf(
        make_predict_fn(str(FOLDER / "two.onnx"), inputs=["b", "a"]), batch_size=32,
        return_type=StructType([StructField("d", VECTOR), StructField("s", FloatType())]),
        input_tensor_shapes=[None, [4]])
    made = rows.withColumn("out", both("scale", "x")).orderBy("id").limit(50).collect()
    found["two"] = [[list(r.out.d), r.out.s] for r in made]
    try:
        flat = predict_batch_udf(make_predict_fn(str(FOLDER / "model.onnx"), device="cpu"),
                                 return_type=VECTOR, batch_size=32)
        rows.limit(3).withColumn("y", flat("scale")).collect()
        found["error"] = ""
    except Exception as error:
        found["error"] = str(error)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(blocks(ROOT / "docs" / "distributed.md", "python")[3], {})
    found["page"] = out.getvalue()
    (FOLDER / "result.json").write_text(json.dumps(found))
    spark.stop()


if __name__ == "__main__":
    run()

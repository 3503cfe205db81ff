"""Spark's own Kafka source and sink: `write BOOTSTRAP CLIENT_ID TOPIC COUNT` writes COUNT records with sequence ids,
`read BOOTSTRAP TOPIC` prints the values of a topic or shadow. Start it with spark-submit and the package
org.apache.spark:spark-sql-kafka-0-10_2.13.
"""

import sys

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F


def write(rows: DataFrame, bootstrap: str, client_id: str, topic: str) -> None:
    """`rows` has the columns `id`, which rises from record to record, and `value`."""
    headers = F.array(
        F.struct(
            F.lit("sidecar-sequence-id").alias("key"),
            F.col("id").cast("string").cast("binary").alias("value"),
        )
    )
    (
        rows.coalesce(1)  # one task is one producer
        .sortWithinPartitions("id")
        .select(F.col("value").cast("binary"), headers.alias("headers"))
        .write.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("kafka.client.id", client_id)
        .option("kafka.connections.max.idle.ms", "-1")
        .option("includeHeaders", "true")
        .option("topic", topic)
        .save()
    )


def read(spark: SparkSession, bootstrap: str, topic: str) -> DataFrame:
    return (
        spark.read.format("kafka")
        .option("kafka.bootstrap.servers", bootstrap)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
        .select(F.col("value").cast("string"))
    )


if __name__ == "__main__":
    command, *arguments = sys.argv[1:]
    spark = SparkSession.builder.appName("recipe").getOrCreate()
    if command == "write":
        numbers = spark.range(int(arguments[3])).withColumn("value", F.col("id").cast("string"))
        write(numbers, arguments[0], arguments[1], arguments[2])
    else:
        for row in read(spark, arguments[0], arguments[1]).collect():
            print(row["value"])

"""The client matrix: unmodified Kafka clients, feature by feature, through a sidecar node or directly against Kafka.

`make test-clients` runs every cell of clients x features as one test. The clients run in processes of their own
(`workers/` for the Python libraries and the Kafka command line tools, `java/` for the Java client); nothing here
imports the product's rooms.
"""

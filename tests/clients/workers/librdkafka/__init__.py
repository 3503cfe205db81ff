"""confluent-kafka, the Python binding of librdkafka."""

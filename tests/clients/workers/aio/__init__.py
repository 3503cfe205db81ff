"""aiokafka."""

"""kafka-python."""

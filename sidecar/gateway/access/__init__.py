"""Kafka's rights: what each API takes, and how a broker answers where they are missing."""

"""Kafka's rights: those that each API requires, and a broker's answers if they are missing."""

"""What a node costs, measured against the same Kafka without it: `make bench`, or `python -m benchmarks`.

Measures and writes down; asserts nothing about time. docs/operate/performance.md says how to read what comes out.
"""

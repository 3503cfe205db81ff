"""Reading the reports of Kafka's load generators, as versions 3.9 to 4.1 print them."""

from __future__ import annotations

from benchmarks.perf_tools import Rate, parse_consumer, parse_producer

WINDOW = "49921 records sent, 9984.2 records/sec (9.75 MB/sec), 2501.3 ms avg latency, 3001.0 ms max latency.\n"
TOTAL = (
    "400000 records sent, 123456.789 records/sec (120.56 MB/sec), 3.20 ms avg latency, 220.00 ms max latency, "
    "2 ms 50th, 10 ms 95th, 50 ms 99th, 100 ms 99.9th.\n"
)
READ = (
    "2026-11-20 15:00:00:123, 2026-11-20 15:00:02:456, 390.6250, 167.4346, 400001, 171453.2, 333, 2000, 195.3, 200000.5"
)


def test_the_total_of_the_producer_counts_not_its_windows() -> None:
    assert parse_producer(WINDOW + WINDOW + TOTAL) == Rate(400_000, 123_456.789)


def test_a_producer_that_was_cut_off_told_nothing() -> None:
    assert parse_producer(WINDOW) is None
    assert parse_producer("") is None


def test_the_consumers_rate_leaves_out_the_time_for_joining_its_group() -> None:
    assert parse_consumer(f"a warning, with, many, commas, 1, 2, 3, 4, 5, 6\n{READ}\n") == Rate(400_001, 200_000.5)


def test_a_consumer_that_read_nothing_told_nothing() -> None:
    assert parse_consumer("Exiting before consuming the expected number of messages\n") is None

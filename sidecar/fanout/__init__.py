"""Many readers at the end of a log share one long poll (docs/use/shadow-topics.md).

`crowd` counts the readers of each partition (pure) · `question` what a reader asks (pure) · `ends` one poll, and the
ends of logs · `tails` the polls for waiting readers · `waiting` how long readers wait, and in which order they are
answered · `recent` the answers of the last seconds · `repeat` requests that differ from the last by the offset alone.
This room knows no clients, and of topics only the names of logs: the gateway calls it and answers its clients.

Two Fetch requests share a poll only if they ask the same question: partition, isolation level, leader epoch and offset.
So a reader gets exactly the bytes that the broker would have sent.
"""

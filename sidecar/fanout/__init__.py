"""Many readers at the end of a log, and one long poll for all of them (docs/shadow-topics.md).

`crowd` who reads what (pure) · `question` what is asked (pure) · `ends` one poll, and where logs end · `tails` the
polls for those who wait · `waiting` how long they do, and whose turn it is · `recent` what polls brought a moment ago.
Knows no clients and no names but those of logs: the gateway asks, and answers its clients.

Two fetches share a poll only where they ask the same question: partition, isolation level, leader epoch and offset.
So a reader gets what the broker would have sent, to the byte.
"""

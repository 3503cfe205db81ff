"""Many readers at the end of a log, and one long poll for all of them (docs/shadow-topics.md).

`crowd` who reads what (pure) · `question` what is asked (pure) · `poll` one poll · `ends` where logs end · `tails` the
polls for those who wait · `recent` and `chains` what they brought a moment ago. Knows no clients and no names but those
of logs: the gateway asks, and answers its clients.

Two fetches share a poll only where they ask the same question: partition, isolation level, leader epoch and offset.
So a reader gets what the broker would have sent, to the byte.
"""

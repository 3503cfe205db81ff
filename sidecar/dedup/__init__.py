"""Deduplication by sequence id: a (producer name, sequence id) is appended to a partition once (PIP-6).

Pure: `marks` (the highest ids by name), `content` (the ids of a batch, and what to do with it), `names` (which session
writes under which name), `snapshots` (marks as records). Shells: `gate` (the batches of one session and partition),
`recovery` (marks from snapshot and log), `topic` (one topic's state on the node that serves it). Knows no owners.
"""

"""Deduplication by sequence id: a (producer name, sequence id) is appended to a partition once (PIP-6).

Pure: `marks` (the highest ids by name), `order` (a client's own sequences), `names` (which session writes under which
name), `snapshots` (marks as records). Shells: `gate` (the batches of one session and partition), `recovery` (marks from
snapshot and log), `topic` (one topic's state on the node that serves it). Knows no owners.
"""

"""Metrics and logs of a node: plain counters for the hot path, their exposition at scrape time, structured logs.

A leaf: it imports nothing of ours and is handed to the rooms as objects with a few methods (`sidecar.telemetry.hooks`).
It never decides anything and never raises into its callers.
"""

"""Checks whether a log is as nodes promise: compares the runs of the log with what nodes know of its writers.

A *run* is what one writer wrote in a row within a split (`sidecar.pipeline.source`), so ten million clean records are a
few rows. Every check is a function from data frames to data frames over runs. Single records are read a second time
only in the few ranges that runs cannot judge. Nothing here connects to nodes, Redis or the internal topics: their
content is given as plain tables (`facts`).

- `duplicates`: records whose (partition, name, id) is in the log earlier.
- `regressions`: records whose id is not above the highest before it for (partition, name), and no duplicate.
- `interleaved`: batches of an older generation after the first batch of a newer one in their partition.
- `unowned`: batches that no epoch of a writer slot wrote, on a partition while it was governed.
- `missing`: first or last stamped sequences or ids that are expected and absent.
"""

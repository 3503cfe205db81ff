"""Does a log keep what nodes promise? Checks over the runs of a log, joined with what nodes know of its writers.

A *run* is what one writer wrote in a row within a split (`sidecar.pipeline.source`), so ten million clean records are
a few rows. Every check is a function from data frames to data frames over runs; single records are read a second time
for the few ranges that runs cannot judge. Nothing here talks to nodes, Redis or the internal topics: what they know
comes as plain tables (`facts`).

- `duplicates`: records whose (partition, name, id) is in the log earlier.
- `regressions`: records whose id is not above the highest before it for (partition, name), and no duplicate.
- `interleaved`: batches of an older generation after the first batch of a newer one in their partition.
- `unowned`: batches on a governed partition that no epoch of a writer slot wrote, from where it was governed on.
- `missing`: first or last stamped sequences or ids that are expected and absent.
"""

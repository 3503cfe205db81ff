"""What the jobs on Spark (`sidecar.jobs`) are made of: logs as data frames, the checks of audits, Delta tables, pages.

Nothing here talks to nodes or Redis.
"""

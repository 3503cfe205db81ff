"""The parts of the jobs on Spark (`sidecar.jobs`): logs as data frames, the checks of audits, Delta tables, pages.

Nothing here connects to Redis or uses the interfaces of nodes.
"""

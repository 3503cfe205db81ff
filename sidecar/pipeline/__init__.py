"""Jobs on Spark over whole logs: audit, rebuild, export, compact, report. Each is a function from data frames to data
frames with thin sources and sinks around it; nothing here talks to nodes or Redis (`sidecar.jobs` does).
"""

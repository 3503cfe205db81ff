"""Thousands of consumer groups of one member each: their joins, heartbeats and commits, and a restart of their node."""

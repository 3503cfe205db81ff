"""A takeover: fences every earlier writer of a slot, reads where it stopped, and records who writes from now on.
Returns what was taken, or an error; knows no topic object.
"""

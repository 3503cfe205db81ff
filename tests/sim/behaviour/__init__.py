"""The record of behaviour: what a product did in the histories of many seeds, as those who deal with it could see it.

`recorder` writes down one history, `archive` keeps many in a file, `entries` makes sentences of what was written,
`differences` finds where two records part and tells the story of it. docs/internals/simulation.md says how to use it.
"""

"""How long an exclusive topic is without a writer when its owner changes, leaves or dies, or its node does.

`make bench ARGS='--only ownership'`. Two nodes, real processes; every acknowledged record is looked for in the log
afterwards, and the run ends with an error where one is not there, or twice.
"""

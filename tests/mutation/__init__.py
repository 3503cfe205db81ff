"""Mutation testing of the core: hundreds of small mistakes that nobody chose, and the tests that notice them.

    operators.py    the mistakes that a module's text allows, each with a stable id
    rooms.py        which modules are mutated
    swap.py         puts a mistake into a process that has imported the product already
    unit.py         unit tests: which of them run which statement, and which fail with a mistake
    simulated.py    the same with seeds of the simulator
    known.py        reads known.txt: mutants that survive, each with the reason
    results.py      the table by room, and the files of results
    __main__.py     `make mutation`

`tests/sim/mutants` has mistakes that were chosen, each with the histories that find it.
"""

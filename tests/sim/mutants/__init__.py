"""Mutants: the product with one mistake each, and the histories that find it. `make mutants` prints them all.

    edits.py        a mistake as a change of the product's text, made as it is imported
    bias.py         random histories with more of what brings a mistake out
    schedules.py    short schedules, for moments that chance alone finds too seldom
    mutant.py       what a mutant is
    holes.py        holes of the first build
    takeover.py     mutants of the models `ExclusiveTopic` and `Slots`
    tails.py        those of `Tails`
    sequences.py    those of `ClientSequences`
    space.py        those of `SequenceSpace`
    keepalive.py    those of `KeepAlive`
    deduplication.py    those of sequence ids
    removals.py     those of what Kafka removes, by plain histories
    redundant.py    rules that one edit cannot break
    all.py          every mutant
    run.py          plays one until it is found
    __main__.py     plays them all, and prints a table

Nothing is imported here: a worker reads `edits` before the product is imported.
"""

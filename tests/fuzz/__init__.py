"""Bytes of strangers, by the million: no byte string raises what nobody expects, holds the event loop, or takes memory.

`python -m tests.fuzz` (`make fuzz`) runs the targets under libFuzzer, which keeps every input that reaches new lines of
the product. `corpus/` has the inputs to begin with and `finds/` those that once showed a mistake, in lines of base64;
`test_fuzz.py` plays all of them once.
"""

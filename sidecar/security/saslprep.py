"""SASLprep (RFC 4013, a profile of RFC 3454): the normal form of names and passwords before they are hashed.

Kafka does not do it: brokers, its tools and its clients hash the bytes of the password as they are
(`ScramFormatter.normalize`), although RFC 5802 requires SASLprep. So this is for passwords that are set here: a
password that SASLprep changes has two forms, and clients differ in which one they use.
"""

import stringprep
from typing import Final
from unicodedata import ucd_3_2_0 as unicode_3_2

_PROHIBITED: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


def saslprep(text: str) -> str:
    """The prepared form, for storing: characters that Unicode 3.2 does not have are refused. Raises ValueError."""
    mapped = "".join(
        " " if stringprep.in_table_c12(each) else each for each in text if not stringprep.in_table_b1(each)
    )
    prepared = unicode_3_2.normalize("NFKC", mapped)
    for each in prepared:
        if any(prohibits(each) for prohibits in _PROHIBITED):
            raise ValueError(f"character U+{ord(each):04X} is not allowed (RFC 4013, 2.3)")
        if stringprep.in_table_a1(each):
            raise ValueError(f"character U+{ord(each):04X} is not assigned in Unicode 3.2 (RFC 4013, 2.5)")
    if any(map(stringprep.in_table_d1, prepared)):
        if any(map(stringprep.in_table_d2, prepared)):
            raise ValueError("characters of both directions (RFC 3454, 6)")
        if not (stringprep.in_table_d1(prepared[0]) and stringprep.in_table_d1(prepared[-1])):
            raise ValueError("text from right to left must begin and end so (RFC 3454, 6)")
    return prepared

"""The subject of a certificate as Java's `X500Principal.getName()` writes it: the form in Kafka's rules and ACLs.

That is RFC 2253 with some choices of its own (`sun.security.x509.AVA.toRFC2253String`): the last part of the name comes
first; nine attribute types have keywords, of all others the value is `#` and its DER in hexadecimal; `=` is escaped,
too, and so are spaces at both ends. Values are read as UTF-8 whatever their type says.
"""

from typing import Final, NamedTuple

_KEYWORDS: Final = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
_ESCAPED: Final = ',=+<>#;"\\'
_BLANK: Final = " \r"
_SEQUENCE: Final = 0x30
_SET: Final = 0x31
_OID: Final = 0x06
_VERSION: Final = 0xA0
_STRINGS: Final = frozenset({0x0C, 0x13, 0x14, 0x16, 0x1B, 0x1E})
"""Types that Java takes as text: UTF8, Printable, T61, IA5, General and BMP String."""


_LONGEST: Final = 2_048
"""Characters of a name. Rules are an operator's regular expressions. The time of many grows with the square or the cube
of the name's length: 35 ms for this length, hours for the 100 KB that a handshake accepts.
"""


class CertificateError(ValueError):
    """The bytes are not a certificate, or the certificate is not accepted."""


class _Element(NamedTuple):
    """One DER element: where it begins, where its content does, and where both end."""

    tag: int
    begin: int
    start: int
    end: int


def subject_of(certificate: bytes) -> str:
    """The subject of a certificate in DER, as `SSLObject.getpeercert(True)` gives it. Raises CertificateError."""
    whole = _element(certificate, 0, len(certificate), _SEQUENCE)
    signed = _element(certificate, whole.start, whole.end, _SEQUENCE)
    at = signed.start
    first = _element(certificate, at, signed.end)
    if first.tag == _VERSION:
        at = first.end
    for _ in ("serial number", "signature", "issuer", "validity"):
        at = _element(certificate, at, signed.end).end
    subject = _element(certificate, at, signed.end, _SEQUENCE)
    name = distinguished_name(certificate[subject.begin : subject.end])
    if len(name) > _LONGEST:
        raise CertificateError(f"the subject of a certificate has {len(name)} characters, {_LONGEST} at most are taken")
    return name


def distinguished_name(name: bytes) -> str:
    """A name in DER. Raises CertificateError."""
    whole = _element(name, 0, len(name), _SEQUENCE)
    parts: list[str] = []
    at = whole.start
    while at < whole.end:
        part = _element(name, at, whole.end, _SET)
        parts.append("+".join(_attributes(name, part)))
        at = part.end
    return ",".join(reversed(parts))


def _attributes(name: bytes, part: _Element) -> list[str]:
    found: list[str] = []
    at = part.start
    while at < part.end:
        attribute = _element(name, at, part.end, _SEQUENCE)
        kind = _element(name, attribute.start, attribute.end, _OID)
        value = _element(name, kind.end, attribute.end)
        oid = _oid(name[kind.start : kind.end])
        keyword = _KEYWORDS.get(oid)
        if keyword is None or value.tag not in _STRINGS:
            found.append(f"{keyword or oid}=#{name[value.begin : value.end].hex()}")
        else:
            found.append(f"{keyword}={_escaped(name[value.start : value.end].decode('utf-8', 'replace'))}")
        at = attribute.end
    return found


def _escaped(text: str) -> str:
    escaped = "".join(f"\\{each}" if each in _ESCAPED else "\\00" if each == "\0" else each for each in text)
    inner = escaped.strip(_BLANK)
    lead = len(escaped) - len(escaped.lstrip(_BLANK))
    trail = len(escaped) - lead - len(inner)
    return (
        "".join(f"\\{each}" for each in escaped[:lead])
        + inner
        + "".join(f"\\{each}" for each in (escaped[-trail:] if trail else ""))
    )


def _oid(content: bytes) -> str:
    """An object identifier (X.690, 8.19)."""
    numbers: list[int] = []
    number = 0
    for octet in content:
        number = number << 7 | octet & 0x7F
        if octet < 0x80:
            numbers.append(number)
            number = 0
    if not numbers or content[-1] >= 0x80:
        raise CertificateError("an object identifier is cut off")
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _element(data: bytes, at: int, end: int, tag: int | None = None) -> _Element:
    """The element at `at` that must end by `end` (X.690, 8.1); of type `tag` where that is given."""
    if end - at < 2:
        raise CertificateError("a certificate is cut off")
    size, start = data[at + 1], at + 2
    if size >= 0x80:
        count = size & 0x7F
        if not 1 <= count <= 4 or end - start < count:
            raise CertificateError("a length in a certificate is none")
        size, start = int.from_bytes(data[start : start + count], "big"), start + count
    if size > end - start:
        raise CertificateError("a certificate is cut off")
    if tag is not None and data[at] != tag:
        raise CertificateError(f"type {data[at]} in a certificate where {tag} must be")
    return _Element(data[at], at, start, start + size)

"""`ssl.principal.mapping.rules` (KIP-371): the name of a certificate's holder, as in Kafka's `SslPrincipalMapper`.

Rules are separated by commas: `RULE:pattern/replacement/[LU]`, or `DEFAULT` for the distinguished name itself. The
first whose pattern matches the whole name gives the result. Patterns are Java's regular expressions; forms that
Python writes differently are translated or refused.
"""

import re
from collections.abc import Callable
from typing import Final, NamedTuple

DEFAULT: Final = "DEFAULT"
ANONYMOUS: Final = "ANONYMOUS"
"""Kafka's name for a client without a certificate."""

_RULE: Final = r"(DEFAULT)|RULE:((\\.|[^\\/])*)/((\\.|[^\\/])*)/([LU]?).*?|(.*?)"
_SPLITTER: Final = re.compile(rf"\s*({_RULE})\s*(,\s*|$)", re.ASCII)
_PARSER: Final = re.compile(_RULE)
_REFERENCE: Final = re.compile(r"\$(\d+)", re.ASCII)
_OF_JAVA_ALONE: Final = {
    r"(?<!\\)(?:\\\\)*\\[pP]": r"\p{…}",
    r"(?<!\\)(?:\\\\)*\\[QE]": r"\Q…\E",
    r"(?<!\\)(?:\\\\)*\\[RXGHVhvez]": "a class that only Java has",
    r"&&": "an intersection of classes",
}


class NoRuleError(ValueError):
    """No rule matches a name: its holder is refused."""


class _Rule(NamedTuple):
    """`pattern` is None for DEFAULT."""

    pattern: re.Pattern[str] | None
    replacement: Callable[[re.Match[str]], str]
    change: Callable[[str], str] | None


class PrincipalMapping:
    """The rules of a listener. Raises ValueError for an invalid text."""

    def __init__(self, rules: str = DEFAULT) -> None:
        found = [match[1] for match in _SPLITTER.finditer(rules.strip())]
        self._rules: Final = [parsed for text in found if (parsed := _parse(text)) is not None]

    def name(self, distinguished_name: str) -> str:
        """Return the name of a certificate's holder. Raises NoRuleError."""
        for pattern, replacement, change in self._rules:
            if pattern is None:
                return distinguished_name
            if pattern.fullmatch(distinguished_name):
                # as Java's replaceAll: every match in the name, not only the whole of it
                result = pattern.sub(replacement, distinguished_name)
                return change(result) if change is not None else result
        raise NoRuleError(f"no rule of the principal mapping is for {distinguished_name[:200]!r}")

    def principal(self, distinguished_name: str | None) -> str:
        """As Kafka's principals are written: `User:` and the name; None is a client without a certificate. Raises
        NoRuleError.
        """
        return f"User:{ANONYMOUS if distinguished_name is None else self.name(distinguished_name)}"


def _parse(text: str) -> _Rule | None:
    """One rule; None for an empty one, which Kafka ignores too."""
    match = _PARSER.match(text)
    if match is None or match.end() != len(text):
        raise ValueError(f"{text[:200]!r} is no rule: DEFAULT or RULE:pattern/replacement/[LU] is meant")
    if match[1] is not None:
        return _Rule(None, _nothing, None)
    if match[2] is None:
        return None
    pattern = _compiled(match[2])
    try:
        replacement = _replacement(_with_literal_references(match[4], pattern.groups), pattern)
    except ValueError as error:
        raise ValueError(f"{text[:200]!r} is no rule: {error}") from None
    return _Rule(pattern, replacement, {"L": str.lower, "U": str.upper}.get(match[6]))


def _nothing(_: re.Match[str]) -> str:
    return ""


def _compiled(pattern: str) -> re.Pattern[str]:
    for only, name in _OF_JAVA_ALONE.items():
        if re.search(only, pattern):
            raise ValueError(f"{pattern[:200]!r} has {name}, which is not supported here: write it in another way")
    try:
        return re.compile(re.sub(r"\(\?<(?![=!])", "(?P<", pattern), re.ASCII)
    except re.error as error:
        raise ValueError(f"{pattern[:200]!r} is no regular expression: {error}") from None


def _with_literal_references(replacement: str, groups: int) -> str:
    """`escapeLiteralBackReferences`: `$4` is literal text if there are three groups. As in Kafka the positions are
    those of the text before escaping, so a second such reference is missed, and refused later.
    """
    if not groups:
        return replacement
    value = replacement
    for match in _REFERENCE.finditer(replacement):
        if match[1].startswith("0"):
            continue
        number = int(match[1])
        while number > groups and number >= 10:
            number //= 10
        if number > groups:
            at = match.start(1) - 1
            value = value[:at] + "\\" + value[at:]
    return value


def _replacement(text: str, pattern: re.Pattern[str]) -> Callable[[re.Match[str]], str]:
    """As `Matcher.appendReplacement`: a character after a backslash is literal, `$n` and `${name}` are groups. Raises
    ValueError.
    """
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        each = text[at]
        if each == "\\":
            if at + 1 == len(text):
                raise ValueError("its replacement ends with a backslash")
            parts.append(text[at + 1])
            at += 2
        elif each == "$":
            group, at = _group(text, at + 1, pattern)
            parts.append(group)
        else:
            parts.append(each)
            at += 1
    return lambda match: "".join(part if isinstance(part, str) else match[part] or "" for part in parts)


def _group(text: str, at: int, pattern: re.Pattern[str]) -> tuple[int, int]:
    """Return the group after a `$`, and where it ends: digits are taken while such a group exists."""
    named = re.compile(r"\{([A-Za-z][A-Za-z0-9]*)\}").match(text, at)
    if named is not None:
        if named[1] not in pattern.groupindex:
            raise ValueError(f"its pattern has no group {named[1]}")
        return pattern.groupindex[named[1]], named.end()
    if at == len(text) or text[at] not in "0123456789":
        raise ValueError("a $ in its replacement names no group")
    number = int(text[at])
    at += 1
    if number > pattern.groups:
        raise ValueError(f"its pattern has no group {number}")
    while at < len(text) and text[at] in "0123456789" and number * 10 + int(text[at]) <= pattern.groups:
        number = number * 10 + int(text[at])
        at += 1
    return number, at

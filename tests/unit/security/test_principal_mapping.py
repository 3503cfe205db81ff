"""`ssl.principal.mapping.rules`: the cases of Kafka's `SslPrincipalMapperTest`, and what its class did with more."""

from __future__ import annotations

import pytest

from sidecar.security.principal_mapping import NoRuleError, PrincipalMapping

RULES = (
    "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L, "
    "RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L, "
    "RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U, "
    "RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U, "
    "DEFAULT"
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        ("CN=Duke,OU=ServiceUsers,O=Org,C=US", "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_matches_gives_the_name(name: str, principal: str) -> None:
    assert PrincipalMapping(RULES).name(name) == principal


def test_without_rules_the_name_is_the_distinguished_name() -> None:
    assert PrincipalMapping().principal("CN=a,O=b") == "User:CN=a,O=b"


def test_who_shows_no_certificate_is_anonymous() -> None:
    assert PrincipalMapping("RULE:x/y/").principal(None) == "User:ANONYMOUS"


@pytest.mark.parametrize("rules", ["", "RULE:CN=b/x/", " , ,"])
def test_where_no_rule_matches_nobody_is_let_in(rules: str) -> None:
    with pytest.raises(NoRuleError, match="CN=a"):
        PrincipalMapping(rules).name("CN=a")


@pytest.mark.parametrize(
    ("rules", "name", "expected"),
    [
        ("RULE:(.*)/x$1/", "ab", "xabx"),  # all matches, the empty one at the end too
        ("RULE:(C)(N)=(\\w+)/$3$4$2/", "CN=a", "a$4N"),  # a reference to no group is a text
        ("RULE:CN=(a)/$12/", "CN=a", "a2"),  # as many digits as there are groups
        ("RULE:CN=(a)/$01/", "CN=a", "a"),
        ("RULE:CN=(a)/\\$1\\/\\x/", "CN=a", "$1/x"),
        ("RULE:CN=(?<user>.*)/${user}/", "CN=ab", "ab"),
        ("RULE:(a)|(b)/[$2]/", "a", "[]"),
        ("RULE:CN=a\\/b/x/", "CN=a/b", "x"),
        ("RULE:CN=\\w/x/,DEFAULT", "CN=ä", "CN=ä"),
        ("  DEFAULT ,RULE:junk/x/", "CN=a", "CN=a"),
        ("RULE:.*,O=(.*)/$1/U,DEFAULT", "CN=a,O=b", "B"),
    ],
)
def test_a_replacement_is_javas(rules: str, name: str, expected: str) -> None:
    assert PrincipalMapping(rules).name(name) == expected


@pytest.mark.parametrize(
    ("rules", "why"),
    [
        ("default", "'default' is no rule"),
        ("RULE:a/b", "is no rule"),
        ("RULE:a/b/LU", "is no rule"),
        ("RULE:a/b/,junk", "'junk' is no rule"),
        ("RULE:(/b/", "no regular expression"),
        ("RULE:a/$1/", "has no group 1"),
        ("RULE:(a)/$4@$5/", "has no group 5"),
        ("RULE:a/${x}/", "has no group x"),
        ("RULE:a/$/", "names no group"),
        ("RULE:\\p{L}+/x/", "not supported here"),
        ("RULE:[a-z&&[^b]]/x/", "not supported here"),
    ],
)
def test_a_rule_that_is_none_is_refused_at_once(rules: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PrincipalMapping(rules)

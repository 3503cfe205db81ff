"""Kafka's ACLs: the index against a plain scan of all rules, as `StandardAuthorizer` has it, and the cases apart."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.limits import SLICE
from sidecar.security.acls import (
    CLUSTER_NAME,
    Acls,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rules,
    Subject,
    Verdicts,
    java_address,
    parse_super_users,
)

ALICE = Subject("User:alice", "10.0.0.1")


def rule(
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    permission: Permission = Permission.ALLOW,
    pattern: PatternType = PatternType.LITERAL,
    kind: ResourceType = ResourceType.TOPIC,
    principal: str = ALICE.principal,
    host: str = "*",
) -> AclBinding:
    return AclBinding(kind, name, pattern, principal, host, operation, permission)


def may(acls: Acls, operation: Operation, name: str = "orders", subject: Subject = ALICE) -> bool:
    return acls.may(subject, operation, ResourceType.TOPIC, name)


def test_without_a_rule_nothing_is_allowed() -> None:
    assert not may(Acls(), Operation.DESCRIBE)


def test_a_literal_rule_is_for_its_resource_alone() -> None:
    acls = Acls([rule()])
    assert may(acls, Operation.READ)
    assert not may(acls, Operation.READ, "orders2")
    assert not may(acls, Operation.READ, "order")
    assert not acls.may(ALICE, Operation.READ, ResourceType.GROUP, "orders")


def test_a_prefixed_rule_is_for_all_names_that_begin_so() -> None:
    acls = Acls([rule(name="ord", pattern=PatternType.PREFIXED)])
    assert may(acls, Operation.READ, "ord")
    assert may(acls, Operation.READ, "orders")
    assert not may(acls, Operation.READ, "or")


def test_a_literal_star_is_every_resource_and_a_prefixed_one_is_a_star() -> None:
    assert may(Acls([rule(name="*")]), Operation.READ)
    assert not may(Acls([rule(name="*", pattern=PatternType.PREFIXED)]), Operation.READ)


def test_a_deny_outweighs_every_allow() -> None:
    wide = rule(name="*", permission=Permission.DENY, principal="User:*")
    assert not may(Acls([rule(), wide]), Operation.READ)
    assert may(Acls([rule(), wide]), Operation.DESCRIBE)


def test_a_rule_is_for_its_host() -> None:
    acls = Acls([rule(host="10.0.0.1")])
    assert may(acls, Operation.READ)
    assert not may(acls, Operation.READ, subject=Subject("User:alice", "10.0.0.2"))


@pytest.mark.parametrize("stronger", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_what_allows_more_allows_to_describe(stronger: Operation) -> None:
    assert may(Acls([rule(stronger)]), Operation.DESCRIBE)
    assert may(Acls([rule(Operation.DESCRIBE), rule(stronger, permission=Permission.DENY)]), Operation.DESCRIBE)


def test_to_alter_configurations_allows_to_describe_them_and_nothing_else() -> None:
    acls = Acls([rule(Operation.ALTER_CONFIGS)])
    assert may(acls, Operation.DESCRIBE_CONFIGS)
    assert not may(acls, Operation.DESCRIBE)
    assert not may(Acls([rule(Operation.CREATE)]), Operation.DESCRIBE)


def test_all_is_every_operation() -> None:
    assert all(may(Acls([rule(Operation.ALL)]), operation) for operation in Operation)
    denied = Acls([rule(Operation.ALL), rule(Operation.ALL, permission=Permission.DENY)])
    assert not any(may(denied, operation) for operation in Operation)


def test_a_super_user_may_do_what_is_denied() -> None:
    rules = Rules(super_users=frozenset({"User:alice"}))
    assert may(Acls([rule(permission=Permission.DENY)], rules), Operation.READ)
    assert not may(Acls([], rules), Operation.READ, subject=Subject("User:bob", "10.0.0.1"))


def test_a_resource_that_no_rule_names_is_open_if_the_setting_says_so() -> None:
    acls = Acls([rule(principal="User:bob")], Rules(allow_if_no_acl=True))
    assert not may(acls, Operation.READ)
    assert may(acls, Operation.READ, "payments")


def test_a_rule_of_a_newer_kafka_is_no_rule_of_this_one() -> None:
    unknown = rule()._replace(pattern_type=77)
    assert not may(Acls([unknown]), Operation.READ)
    assert not Acls([unknown]).may_somewhere(ALICE, Operation.READ, ResourceType.TOPIC)
    assert Acls([rule()._replace(operation=77)]).allowed(ALICE, ResourceType.TOPIC, "orders") == 1 << 77


def test_to_write_anywhere_is_to_write_idempotently() -> None:
    assert not Acls().may_write_idempotently(ALICE)
    assert Acls([rule(Operation.WRITE)]).may_write_idempotently(ALICE)
    on_cluster = rule(Operation.IDEMPOTENT_WRITE, CLUSTER_NAME, kind=ResourceType.CLUSTER)
    assert Acls([on_cluster]).may_write_idempotently(ALICE)


# Against a plain scan -------------------------------------------------------------------------------------------------

NAMES = ["a", "ab", "abc", "b", "*", "hard", "hardcode"]
HOSTS = ["10.0.0.1", "10.0.0.2"]
USERS = ["User:alice", "User:bob"]
bindings = st.builds(
    AclBinding,
    st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP]),
    st.sampled_from(NAMES),
    st.sampled_from(PatternType),
    st.sampled_from([*USERS, "User:*"]),
    st.sampled_from([*HOSTS, "*"]),
    st.sampled_from(Operation),
    st.sampled_from(Permission),
)
subjects = st.builds(Subject, st.sampled_from(USERS), st.sampled_from(HOSTS))
settings_of_authorizers = st.builds(
    Rules, st.frozensets(st.sampled_from([*USERS, "User:admin"]), max_size=1), st.booleans()
)


def applies(binding: AclBinding, subject: Subject, operation: int) -> bool:
    """`StandardAuthorizerData.findResult`."""
    if binding.principal not in (subject.principal, "User:*") or binding.host not in (subject.host, "*"):
        return False
    if binding.operation in (Operation.ALL, operation):
        return True
    if binding.permission == Permission.DENY:
        return False
    implied = {
        Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
        Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
    }
    return binding.operation in implied.get(Operation(operation), ())


def scanned(rules: Rules, acls: list[AclBinding], subject: Subject, operation: int, kind: int, name: str) -> bool:
    """`StandardAuthorizerData.findAclRule`, every rule looked at."""
    if subject.principal in rules.super_users:
        return True
    named = [
        each
        for each in acls
        if each.resource_type == kind
        and (
            name.startswith(each.resource_name)
            if each.pattern_type == PatternType.PREFIXED
            else each.resource_name in (name, "*")
        )
    ]
    if not named:
        return rules.allow_if_no_acl
    permissions = {each.permission for each in named if applies(each, subject, operation)}
    return permissions == {Permission.ALLOW}


def somewhere(rules: Rules, acls: list[AclBinding], subject: Subject, operation: int, kind: int) -> bool:
    """`Authorizer.authorizeByResourceType`."""
    if scanned(rules, acls, subject, operation, kind, "hardcode"):
        return True
    own = [
        each
        for each in acls
        if each.resource_type == kind
        and each.principal in (subject.principal, "User:*")
        and each.host in (subject.host, "*")
        and each.operation in (operation, Operation.ALL)
    ]
    denies = {(each.pattern_type, each.resource_name) for each in own if each.permission == Permission.DENY}
    allows = {(each.pattern_type, each.resource_name) for each in own if each.permission == Permission.ALLOW}
    if (PatternType.LITERAL, "*") in denies:
        return False
    if (PatternType.LITERAL, "*") in allows:
        return True
    for pattern, name in allows:
        if pattern == PatternType.LITERAL and (pattern, name) in denies:
            continue
        if not any((PatternType.PREFIXED, name[:size]) in denies for size in range(1, len(name) + 1)):
            return True
    return False


@given(settings_of_authorizers, st.lists(bindings, max_size=12), subjects)
def test_a_verdict_is_that_of_a_scan_of_all_rules(rules: Rules, given_acls: list[AclBinding], subject: Subject) -> None:
    acls = Acls(given_acls, rules)
    for kind in (ResourceType.TOPIC, ResourceType.GROUP):
        for operation in Operation:
            for name in [*NAMES, "abcd", "c"]:
                expected = scanned(rules, given_acls, subject, operation, kind, name)
                assert acls.may(subject, operation, kind, name) is expected, (operation, name)
            expected = somewhere(rules, given_acls, subject, operation, kind)
            assert acls.may_somewhere(subject, operation, kind) is expected, operation


# Snapshots ------------------------------------------------------------------------------------------------------------


def test_the_version_changes_with_the_bindings_and_with_nothing_else() -> None:
    first = Acls([rule()])
    assert first.replaced([rule(), rule()]) is first
    second = first.replaced([rule(), rule(Operation.WRITE)])
    assert second.version == first.version + 1
    assert not may(first, Operation.WRITE)


def test_others_have_their_turn_while_many_rules_are_taken_in() -> None:
    steps = Acls().replaced_steps([rule(name=f"t{number}") for number in range(4 * SLICE)])
    assert sum(1 for _ in steps) == 4


def test_a_remembered_verdict_goes_with_the_snapshot() -> None:
    acls = Acls([rule(Operation.WRITE)])
    verdicts = Verdicts(ALICE, acls)
    for _ in range(2):
        assert verdicts.may(acls, Operation.WRITE, ResourceType.TOPIC, "orders")
        assert verdicts.may_write_idempotently(acls)
    acls = acls.replaced([])
    for _ in range(2):
        assert not verdicts.may(acls, Operation.WRITE, ResourceType.TOPIC, "orders")
        assert not verdicts.may_write_idempotently(acls)


def test_a_connection_remembers_a_bounded_number_of_resources() -> None:
    acls = Acls([rule(name="t", pattern=PatternType.PREFIXED)])
    verdicts = Verdicts(ALICE, acls)
    for number in range(3 * Verdicts.LIMIT):
        assert verdicts.may(acls, Operation.READ, ResourceType.TOPIC, f"t{number}")
    assert len(verdicts._allowed) <= Verdicts.LIMIT


def test_a_connection_remembers_no_long_names() -> None:
    acls = Acls([rule(name="t", pattern=PatternType.PREFIXED)])
    verdicts = Verdicts(ALICE, acls)
    for longer in (0, 1):
        assert verdicts.may(acls, Operation.READ, ResourceType.TOPIC, "t" * (Verdicts.LONGEST + longer))
    assert [len(name) for _, name in verdicts._allowed] == [Verdicts.LONGEST]


# Words of Kafka's -----------------------------------------------------------------------------------------------------


def test_super_users_stand_in_a_list_with_semicolons() -> None:
    names = "User:admin; User:CN=node,O=here ;;"
    assert parse_super_users(names) == {"User:admin", "User:CN=node,O=here"}
    with pytest.raises(ValueError, match="'admin' is no principal"):
        parse_super_users("User:a;admin")


@pytest.mark.parametrize(
    ("text", "java"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::00ff:1", "2001:db8:0:0:0:0:ff:1"),
        ("::ffff:10.1.2.3", "10.1.2.3"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_an_address_is_written_as_java_writes_it(text: str, java: str) -> None:
    assert java_address(text) == java

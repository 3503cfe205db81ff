"""What an operator sets up through the page: policies, topics, allow lists, cursors, producer names."""

from __future__ import annotations

from playwright.sync_api import expect

from tests.kafka.shadow.groups import commit, write
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import TOKEN, Visit
from tests.slow.page.test_acts import confirm, press
from tests.slow.page.test_sections import cell, fact, row
from tests.topics import create_topic
from tests.wait import wait_for


def test_a_policy_is_set_and_forgotten_on_the_page_of_a_topic(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.name("free")
    create_topic(cluster.kafka, 2, topic)
    page = visit(f"{cluster.url}#/topics/{topic}", token=TOKEN)
    expect(fact(page, "Access")).to_have_text("not governed: requests pass through")
    dialog = press(page, "Set policy…")
    confirm(dialog, "Set")  # an empty policy would govern the topic
    expect(dialog.get_by_role("alert")).to_have_text("Nothing to set: choose at least one field.")
    assert cluster.topic(topic)["policies"] == {}
    dialog.get_by_label("Access mode").select_option("wait_for_exclusive")
    dialog.get_by_label("One owner for").select_option("partition")
    dialog.get_by_label("Deduplication by sequence id").select_option("true")
    confirm(dialog, "Set")
    expect(page.locator("#result")).to_contain_text(f"All live nodes apply the policy of {topic}.")
    assert cluster.topic(topic)["policies"] == {
        topic: {"access_mode": "wait_for_exclusive", "deduplication": True, "scope": "partition"}
    }
    expect(fact(page, "Access")).to_have_text("wait for exclusive")
    expect(fact(page, "Scope")).to_have_text("partition")
    dialog = press(page, "Set policy…")
    expect(dialog.get_by_label("Access mode").locator("option").first).to_have_text("do not change: wait for exclusive")
    dialog.get_by_label("Deduplication by sequence id").select_option("false")
    confirm(dialog, "Set")
    wait_for(lambda: cluster.topic(topic)["policy"]["deduplication"] is False, "the other field", 20)
    assert cluster.topic(topic)["policy"]["access_mode"] == "wait_for_exclusive"
    feed = page.locator("#feed li").filter(has_text=topic)
    said = "An operator at 127.0.0.1 set the policy · Access mode: wait for exclusive · One owner for: each partition"
    expect(feed.filter(has_text=f"{said} · Deduplication by sequence id: off")).to_have_count(1)
    dialog = press(page, "Forget policy…")
    expect(dialog).to_contain_text("Access mode: wait for exclusive")
    confirm(dialog, "Forget")
    expect(page.locator("#result")).to_have_text(f"The policy of {topic} was removed.")
    expect(feed.filter(has_text="An operator at 127.0.0.1 removed the policy")).to_have_count(1)
    expect(fact(page, "Access")).to_have_text("not governed: requests pass through")
    expect(page.locator("main").get_by_role("button", name="Forget policy…")).to_have_count(0)


def test_a_policy_of_a_prefix_says_beforehand_and_afterwards_what_it_covers(visit: Visit, cluster: Cluster) -> None:
    prefix = cluster.name("covered")
    for each in ("a", "b"):
        create_topic(cluster.kafka, 1, f"{prefix}-{each}")
    own = cluster.govern(f"{prefix}-own", 1, access_mode="exclusive")
    cluster.shadow(own, f"{prefix}-shadow")
    page = visit(cluster.url, token=TOKEN)
    dialog = press(page, "Set policy…")
    dialog.get_by_label("Topic, or a prefix followed by *").fill(f"{prefix}-nothing*")
    expect(dialog.get_by_role("status")).to_have_text("Covers no topic yet.")
    dialog.get_by_label("Topic, or a prefix followed by *").fill(f"{prefix}*")
    for each in ("-a", "-b", "-own"):
        expect(dialog.get_by_role("status")).to_contain_text(prefix + each)
    dialog.get_by_label("Access mode").select_option("shared")
    dialog.get_by_label("Deduplication by sequence id").select_option("true")
    confirm(dialog, "Set")
    expect(page.locator("#result")).to_contain_text(f"All live nodes apply the policy of {prefix}*.")
    page.locator("main").get_by_role("link", name=f"{prefix}*").click()
    expect(page.get_by_role("heading", name=f"{prefix}*", exact=True)).to_be_focused()
    expect(cell(page, f"{prefix}-a", "Access")).to_have_text("shared deduplication")
    expect(cell(page, own, "Access")).to_have_text("exclusive deduplication")
    expect(page.locator("main tbody tr")).to_have_count(3)  # its shadow has the policy of the source
    page.locator("main").get_by_role("link", name=own).click()
    expect(page.get_by_role("table", name="Policies that cover it").get_by_role("rowheader")).to_have_text(
        [own, f"{prefix}*"]
    )
    expect(cell(page, f"{prefix}*", "Decides")).to_contain_text("Deduplication by sequence id: on")
    page.go_back()
    confirm(press(page, "Forget policy…"), "Forget")
    expect(page.locator("#result")).to_have_text(f"The policy of {prefix}* was removed.")
    assert cluster.call("GET", f"/v1/topics/{prefix}*")[0] == 404
    expect(page.locator("main").get_by_role("alert")).to_contain_text("there is no topic")


def test_what_the_node_says_against_a_policy_stands_in_the_dialog(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url, token=TOKEN)
    dialog = press(page, "Set policy…")
    confirm(dialog, "Set")
    expect(dialog.get_by_role("alert")).to_contain_text("Enter a topic")
    dialog.get_by_label("Topic, or a prefix followed by *").fill("two words")
    dialog.get_by_label("Access mode").select_option("exclusive")
    status, refusal = cluster.call("PUT", "/v1/topics/two%20words/policy", {"access_mode": "exclusive"})
    assert status == 400
    confirm(dialog, "Set")
    expect(dialog.get_by_role("alert")).to_have_text(refusal["message"])
    dialog.get_by_label("Topic, or a prefix followed by *").fill("__consumer_offsets")
    confirm(dialog, "Set")
    expect(dialog.get_by_role("alert")).to_contain_text("is an internal topic and cannot be governed")


def test_a_topic_is_made_with_its_settings_and_its_policy(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.name("made")
    page = visit(cluster.url, token=TOKEN)
    dialog = press(page, "Create topic…")
    confirm(dialog, "Create")
    expect(dialog.get_by_role("alert")).to_have_text("A topic needs a name.")
    dialog.get_by_label("Name").fill(topic)
    dialog.get_by_label("Partitions").fill("many")
    confirm(dialog, "Create")
    expect(dialog.get_by_role("alert")).to_have_text("The number of partitions has to be a whole number, not “many”.")
    dialog.get_by_label("Partitions").fill("3")
    dialog.get_by_label("Kafka’s settings").fill("retention.ms = soon")
    dialog.get_by_label("Access mode").select_option("exclusive")
    confirm(dialog, "Create")
    expect(dialog.get_by_role("alert")).to_contain_text("retention.ms")  # Kafka's own words
    assert cluster.call("GET", f"/v1/topics/{topic}")[0] == 404
    dialog.get_by_label("Kafka’s settings").fill("retention.ms=3600000\ncleanup.policy=delete")
    confirm(dialog, "Create")
    expect(page.locator("#result")).to_have_text(f"The topic {topic} was created, partitions: 3.")
    expect(cell(page, topic, "Access")).to_have_text("exclusive")
    assert cluster.topic(topic)["partitions"] == 3
    dialog = press(page, "Create topic…")
    dialog.get_by_label("Name").fill(topic)
    confirm(dialog, "Create")
    expect(dialog.get_by_role("alert")).to_contain_text(f"there is a topic {topic} already")


def test_who_may_read_a_shadow_is_changed(visit: Visit, cluster: Cluster) -> None:
    shadow = cluster.shadow(cluster.name("orders"), cluster.name("orders-list"), allow=["User:one"])
    page = visit(f"{cluster.url}#/shadows/{shadow}", token=TOKEN)
    dialog = press(page, "Change…")
    expect(dialog.get_by_label("Principals that may read it")).to_have_value("User:one")
    dialog.get_by_label("Principals that may read it").fill("User:one\n\nUser:two")
    dialog.get_by_label("Reset a cursor to the end").fill("5000")
    confirm(dialog, "Change")
    expect(page.locator("#result")).to_have_text(f"The shadow {shadow} may be read by User:one, User:two.")
    expect(fact(page, "Reset when behind")).to_have_text("5,000 records")
    dialog = press(page, "Change…")
    dialog.get_by_label("Principals that may read it").fill("nobody in particular")
    confirm(dialog, "Change")
    expect(dialog.get_by_role("alert")).to_contain_text("nobody in particular")
    dialog.get_by_label("Principals that may read it").fill("")
    confirm(dialog, "Change")
    expect(fact(page, "May read")).to_have_text("nobody")
    found = cluster.call("GET", f"/v1/shadows/{shadow}")[1]
    assert (found["allow"], found["auto_reset_backlog_entries"]) == ([], 5000)


def test_the_cursor_of_a_group_is_moved(visit: Visit, cluster: Cluster) -> None:
    source, shadow, group = cluster.name("moved"), cluster.name("moved-audit"), cluster.name("late")
    create_topic(cluster.kafka, 1, source)
    write(cluster.kafka, source, 50)
    cluster.shadow(source, shadow)
    commit(cluster.nodes[0].bootstrap, group, shadow, {0: 10})
    page = visit(f"{cluster.url}#/shadows/{shadow}", token=TOKEN)
    reset = page.get_by_role("button", name=f"Reset the cursor of {group}")
    reset.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text(group)
    expect(dialog.get_by_label("Offset", exact=True)).to_be_hidden()
    dialog.get_by_label("To", exact=True).select_option("offset")
    confirm(dialog, "Reset")
    expect(dialog.get_by_role("alert")).to_have_text("Say which offset.")
    dialog.get_by_label("Offset", exact=True).fill("51")
    confirm(dialog, "Reset")
    expect(dialog.get_by_role("alert")).to_contain_text("51")  # the log does not have it: the node's own words
    dialog.get_by_label("Offset", exact=True).fill("42")
    dialog.get_by_label("Partitions").fill("0")
    confirm(dialog, "Reset")
    expect(page.locator("#result")).to_contain_text("its lag is 8 records")
    expect(cell(page, group, "Lag")).to_have_text("8")
    reset.click()
    dialog.get_by_label("To", exact=True).select_option("timestamp")
    dialog.get_by_label("Time, in the time zone of this browser").fill("2020-01-31T12:00:00")
    confirm(dialog, "Reset")
    expect(cell(page, group, "Lag")).to_have_text("50")
    reset.click()
    confirm(dialog, "Reset")
    expect(cell(page, group, "Lag")).to_have_text("0")


def test_a_producer_name_is_forgotten_once_nobody_uses_it(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("forgetful"), 1, access_mode="shared", deduplication=True)
    for name in ("kept", "gone"):
        cluster.write_ids(topic, name, range(7))
    page = visit(f"{cluster.page_of(topic)}#/topics/{topic}", token=TOKEN)
    page.get_by_role("button", name="Forget the producer gone").click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_contain_text("Last sequence id6")
    confirm(dialog, "Forget")
    expect(page.locator("#result")).to_have_text(f"The ids of producer gone of {topic} were deleted.")
    expect(row(page, "gone")).to_have_count(0)
    expect(row(page, "kept")).to_have_count(1)
    assert cluster.call("GET", f"/v1/topics/{topic}/dedup/gone")[0] == 404

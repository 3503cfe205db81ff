"""What the page changes: with the token, without it, and when the owner has changed meanwhile."""

from __future__ import annotations

import pytest
from playwright.sync_api import Locator, Page, Route, expect

from tests.conftest import StartNode
from tests.kafka.node_log import events
from tests.services import Services
from tests.slow.page.cluster import Cluster
from tests.slow.page.conftest import TOKEN, Visit, enter_token
from tests.wait import wait_for

FENCED = 90


def press(page: Page, act: str) -> Locator:
    """Press one of the topic's buttons; the dialog that asks back."""
    page.locator("main").get_by_role("button", name=act).first.click()
    dialog = page.get_by_role("dialog")
    expect(dialog).to_be_visible()
    return dialog


def confirm(dialog: Locator, verb: str) -> None:
    dialog.get_by_role("button", name=verb, exact=True).click()


def owned(cluster: Cluster, name: str, **policy: object) -> str:
    """A topic of its own with an owner."""
    topic = cluster.govern(cluster.name(name), **{"access_mode": "exclusive", **policy})
    cluster.produce(topic, f"owner-of-{name}")
    return topic


@pytest.mark.parametrize("node", [0, 1])
def test_fencing_names_the_owner_and_deposes_it_whichever_node_is_asked(
    visit: Visit, cluster: Cluster, node: int
) -> None:
    topic = cluster.govern(cluster.name(f"fenced-{node}"), access_mode="exclusive")
    producer = cluster.produce(topic, "doomed")
    page = visit(f"{cluster.nodes[node].admin_url}/#/topics/{topic}", token=TOKEN)
    dialog = press(page, "Fence…")
    for told in (topic, "doomed", "pid:", "Generation1"):
        expect(dialog).to_contain_text(told)
    confirm(dialog, "Fence")
    expect(dialog).to_be_hidden()
    expect(page.locator("#result")).to_have_text(f"doomed, generation 1 of {topic}, was fenced.")
    assert producer.send(topic, b"1", sequence=1).error == FENCED
    expect(page.locator("main").get_by_role("button", name="Fence…")).to_have_count(0)
    expect(page.locator("#feed li").filter(has_text=topic).first).to_contain_text("deposed")


def test_a_released_owner_may_claim_again(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("released"), access_mode="exclusive")
    producer = cluster.produce(topic, "comes-again")
    page = visit(f"{cluster.url}#/topics/{topic}", token=TOKEN)
    confirm(press(page, "Release…"), "Release")
    expect(page.locator("#result")).to_contain_text("was released")
    wait_for(lambda: cluster.topic(topic)["owner"] is None, "the owner to be gone", 20)
    wait_for(lambda: producer.send(topic, b"1", sequence=1).error == 0, "the same session to own it again", 20)


def test_generations_and_ids_beyond_the_numbers_of_a_browser_are_exact(visit: Visit, cluster: Cluster) -> None:
    """As of clients that count both in nanoseconds since 1970."""
    now = 1_795_392_000_123_456_789
    topic = cluster.govern(cluster.name("nanoseconds"), access_mode="exclusive")
    producer = cluster.produce(topic, f"clockwork;mode=exclusive_with_fencing;generation={now}")
    page = visit(f"{cluster.url}#/topics/{topic}", token=TOKEN)
    expect(page.locator("#feed li").filter(has_text=topic).first).to_contain_text(f"generation {now:,}")
    dialog = press(page, "Fence…")
    expect(dialog).to_contain_text(f"{now:,}")
    confirm(dialog, "Fence")
    expect(page.locator("#result")).to_have_text(f"clockwork, generation {now:,} of {topic}, was fenced.")
    assert producer.send(topic, b"1", sequence=1).error == FENCED
    ids = cluster.govern(cluster.name("clocked"), access_mode="shared", deduplication=True)
    cluster.write_ids(ids, "clockwork", range(now, now + 3))
    page = visit(f"{cluster.page_of(ids)}#/topics/{ids}")
    expect(page.get_by_role("row").filter(has_text="clockwork")).to_contain_text(f"{now + 2:,}")


def test_one_partition_is_fenced_and_the_others_are_left(visit: Visit, cluster: Cluster) -> None:
    topic = cluster.govern(cluster.name("parts"), access_mode="exclusive", scope="partition")
    lost, kept = (cluster.produce(topic, f"part-{each}", partition=each) for each in (0, 1))
    page = visit(f"{cluster.url}#/topics/{topic}", token=TOKEN)
    page.get_by_role("button", name="Fence the owner of partition 0").click()
    expect(page.get_by_role("dialog")).to_contain_text("part-0")
    confirm(page.get_by_role("dialog"), "Fence")
    expect(page.locator("#result")).to_contain_text(f"partition 0 of {topic}, was fenced")
    assert lost.send(topic, b"1", sequence=1, partition=0).error == FENCED
    assert kept.send(topic, b"1", sequence=1, partition=1).error == 0


@pytest.mark.smoke
def test_a_shadow_is_made_and_deleted(visit: Visit, cluster: Cluster) -> None:
    topic, shadow = owned(cluster, "shadowed"), cluster.name("shadowed-audit")
    page = visit(f"{cluster.url}#/topics/{topic}", token=TOKEN)
    dialog = press(page, "Create shadow…")
    expect(dialog.get_by_label("Source topic")).to_have_value(topic)
    expect(dialog.get_by_label("Name of the shadow")).to_be_focused()
    dialog.get_by_label("Name of the shadow").fill(shadow)
    dialog.get_by_label("Principals that may read it").fill("User:audit\nUser:search")
    confirm(dialog, "Create")
    expect(page.locator("#result")).to_have_text(f"The shadow {shadow} of {topic} was created.")
    assert cluster.call("GET", f"/v1/shadows/{shadow}")[1]["allow"] == ["User:audit", "User:search"]
    page.get_by_role("button", name=f"Delete the shadow {shadow}").click()
    expect(page.get_by_role("dialog")).to_contain_text(topic)
    confirm(page.get_by_role("dialog"), "Delete")
    expect(page.locator("#result")).to_have_text(f"The shadow {shadow} of {topic} was deleted.")
    assert cluster.call("GET", f"/v1/shadows/{shadow}")[0] == 404


def test_a_shadow_can_be_made_of_any_source_and_errors_are_told_as_the_node_tells_them(
    visit: Visit, cluster: Cluster
) -> None:
    page = visit(f"{cluster.url}#/shadows", token=TOKEN)
    dialog = press(page, "Create shadow…")
    confirm(dialog, "Create")
    expect(dialog.get_by_role("alert")).to_contain_text("Enter the name of the source")
    dialog.get_by_label("Source topic").fill(cluster.name("orders"))
    dialog.get_by_label("Name of the shadow").fill(cluster.name("clicks"))
    status, refusal = cluster.call(
        "POST", f"/v1/topics/{cluster.name('orders')}/shadows", {"name": cluster.name("clicks")}
    )
    assert status == 409
    confirm(dialog, "Create")
    expect(dialog.get_by_role("alert")).to_have_text(refusal["message"])
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()


def test_without_the_token_everything_is_shown_and_nothing_is_changed(visit: Visit, cluster: Cluster) -> None:
    topic = owned(cluster, "guarded")
    page = visit(f"{cluster.url}#/topics/{topic}")
    dialog = press(page, "Fence…")
    confirm(dialog, "Fence")
    expect(dialog.get_by_role("alert")).to_contain_text("The node needs its admin token")
    expect(dialog.get_by_role("alert")).to_contain_text("enter the token at the top")
    assert cluster.topic(topic)["owner"]["name"] == "owner-of-guarded"
    dialog.get_by_role("button", name="Cancel").click()
    enter_token(page, "a-guess")
    dialog = press(page, "Fence…")
    confirm(dialog, "Fence")
    expect(dialog.get_by_role("alert")).to_contain_text("The token at the top is wrong")
    assert cluster.topic(topic)["owner"]["name"] == "owner-of-guarded"


def test_who_saw_an_older_generation_changes_nothing(visit: Visit, cluster: Cluster) -> None:
    topic = owned(cluster, "overtaken", access_mode="exclusive_with_fencing")
    page = visit(f"{cluster.page_of(topic)}#/topics/{topic}", token=TOKEN)
    dialog = press(page, "Fence…")
    cluster.produce(topic, "faster")
    confirm(dialog, "Fence")
    expect(dialog.get_by_role("alert")).to_contain_text("The owner has changed meanwhile, so nothing was done")
    expect(dialog.get_by_role("button", name="Fence", exact=True)).to_be_hidden()
    assert cluster.topic(topic)["owner"]["name"] == "faster"
    dialog.get_by_role("button", name="Cancel").click()
    expect(press(page, "Fence…")).to_contain_text("faster")


@pytest.mark.parametrize("status", [409, 200])
def test_an_answer_that_comes_when_its_dialog_is_closed_is_told_above_and_leaves_the_next_one_alone(
    visit: Visit, cluster: Cluster, status: int
) -> None:
    topic = owned(cluster, f"slow-{status}")
    page = visit(f"{cluster.page_of(topic)}#/topics/{topic}", token=TOKEN)
    held: list[Route] = []
    page.route("**/fence", lambda route: held.append(route))  # noqa: PLW0108 - Playwright marks what it is given
    dialog = press(page, "Fence…")
    confirm(dialog, "Fence")
    dialog.get_by_role("button", name="Cancel").click()
    dialog = press(page, "Create shadow…")
    dialog.get_by_label("Name of the shadow").fill("half typed")
    wait_for(lambda: page.evaluate("true") and held, "the request", 20)
    held[0].fulfill(status=status, content_type="application/json", body='{"message": "nobody owns it"}')
    told = "was fenced." if status == 200 else f"Fence the owner of {topic}? nobody owns it"
    expect(page.locator("#result")).to_contain_text(told)
    expect(dialog.get_by_role("heading")).to_have_text("Create a shadow")
    expect(page.locator("#dialog-error")).to_be_empty()
    expect(dialog.get_by_label("Name of the shadow")).to_have_value("half typed")
    expect(dialog.get_by_role("button", name="Create", exact=True)).to_be_enabled()


@pytest.mark.parametrize("typed", ["two words", "zürich", "密碼"])
def test_what_no_node_has_for_a_token_is_not_taken_for_one(visit: Visit, cluster: Cluster, typed: str) -> None:
    page = visit(cluster.url)
    page.get_by_label("Admin token").fill(typed)
    page.get_by_role("button", name="Use").click()
    expect(page.locator("#result")).to_contain_text("This is not a token")
    assert page.evaluate("sessionStorage.length") == 0


def test_the_token_stays_in_the_tab_and_out_of_every_address(visit: Visit, cluster: Cluster) -> None:
    addresses: list[str] = []
    topic = owned(cluster, "addressed")
    page = visit(f"{cluster.url}#/topics/{topic}")
    page.on("request", lambda request: addresses.append(request.url))
    enter_token(page, TOKEN)
    confirm(press(page, "Release…"), "Release")
    expect(page.locator("#result")).to_contain_text("was released")
    assert [address for address in [*addresses, page.url] if TOKEN in address] == []
    assert TOKEN not in page.content()
    assert page.evaluate("[Object.values(sessionStorage), Object.values(localStorage), document.cookie]") == [
        [TOKEN],
        [],
        "",
    ]
    page.reload()
    page.get_by_role("button", name="Forget", exact=True).click()
    expect(page.get_by_role("button", name="Forget", exact=True)).to_be_hidden()
    assert page.evaluate("sessionStorage.length") == 0


def test_reads_carry_the_token_and_no_url_does(visit: Visit, cluster: Cluster) -> None:
    page = visit(cluster.url, token=TOKEN)
    with page.expect_request(lambda request: "/v1/topics" in request.url) as asked:
        page.get_by_label("governed only").uncheck()
    assert asked.value.headers["authorization"] == f"Bearer {TOKEN}"
    assert TOKEN not in asked.value.url


def test_where_reads_need_a_token_the_page_shows_everything_once_it_is_entered(
    visit: Visit, node_process: StartNode
) -> None:
    node = node_process(ADMIN_TOKEN="to-operate", ADMIN_READ_TOKEN="to-read")
    page = visit(f"{node.admin_url}/")
    expect(page.locator("#feed-state")).to_have_text("not live")
    expect(page.locator("#feed-why")).to_contain_text("SIDECAR_ADMIN_READ_TOKEN")
    page.get_by_label("Admin token").fill("to-read")
    page.get_by_role("button", name="Use").click()
    expect(page.locator("#feed-state")).to_have_text("live")
    expect(page.locator("#place")).to_contain_text("node 1")
    expect(page.locator("main .content")).to_have_attribute("aria-busy", "false")


def test_on_the_nodes_own_machine_no_token_is_needed_where_none_is_set(
    visit: Visit, services: Services, node_process: StartNode
) -> None:
    node = node_process()
    alone = Cluster(services.kafka_bootstrap, [node], suffix="-alone")
    with alone.producers:
        topic = owned(alone, f"{node.cluster}-open")
        page = visit(f"{alone.url}#/topics/{topic}")
        confirm(press(page, "Fence…"), "Fence")
        expect(page.locator("#result")).to_contain_text("was fenced")


def test_another_site_in_the_same_browser_changes_nothing(
    visit: Visit, services: Services, node_process: StartNode
) -> None:
    node, other = node_process(), node_process()
    alone = Cluster(services.kafka_bootstrap, [node], suffix="-alone")
    with alone.producers:
        topic = owned(alone, f"{node.cluster}-foreign")
        foreign = visit(f"{other.admin_url}/readyz", fault=f"asked for {node.admin_url}")
        sent = foreign.evaluate(
            "url => fetch(url, {method: 'POST', mode: 'no-cors'}).then(() => 'sent', () => 'not sent')",
            f"{node.admin_url}/v1/topics/{topic}/fence",
        )
        assert sent == "sent"
        assert alone.topic(topic)["owner"] is not None
        assert [each["result"] for each in events(node, "audit") if each["act"] == "owner.fence"] == ["refused"]

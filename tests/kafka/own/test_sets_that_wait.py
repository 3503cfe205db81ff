"""Sets that overlap and wait, with clients that come and go: everybody is served, and nobody beside another."""

from __future__ import annotations

import random
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from threading import Lock

from sidecar.v1 import control_pb2 as control
from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.own import FENCING, WAIT, OwnClient, new_token, string, topic
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

CLIENTS, TURNS = 5, 3


def test_sets_that_overlap_never_wait_in_a_circle(services: Services, node: NodeProcess, unique: Unique) -> None:
    pool = [topic(create_topic(services.kafka_bootstrap)) for _ in range(3)] + [string(unique("leader"))]
    owned: Counter[int] = Counter()
    lock = Lock()

    def claim_in_turns(me: int) -> int:
        chance, granted = random.Random(me), 0
        for turn in range(TURNS):
            token, wanted = new_token(), chance.sample(range(len(pool)), chance.choice([2, 3]))
            session = 4_300_000 + 100 * me + turn
            asked = [pool[number] for number in wanted]
            with OwnClient(node.bootstrap) as first:
                told = first.own(*asked, mode=WAIT, token=token, producer_id=session)
                with OwnClient(node.bootstrap) as own:
                    for _ in range(5):
                        own.begin_own(*asked, mode=WAIT, token=token, producer_id=session, wait_ms=25_000)
                        told = own.finish(control.OwnResponse)
                        if told.error not in (control.NOT_SERVING, control.UNAVAILABLE):
                            break  # else the coordinator's lease ran out on a busy machine: a client asks again
                    assert told.error == control.NONE, told
                    with lock:
                        owned.update(wanted)
                        assert max(owned.values()) == 1, "two own one resource"
                        granted += 1
                        owned.subtract(wanted)
                    assert own.release(token).error == control.NONE
        return granted

    with ThreadPoolExecutor(CLIENTS) as threads:
        assert list(threads.map(claim_in_turns, range(CLIENTS))) == [TURNS] * CLIENTS


def test_nobody_is_told_to_own_what_another_has(services: Services, node: NodeProcess, unique: Unique) -> None:
    orders, names = topic(create_topic(services.kafka_bootstrap)), [string(unique("leader")) for _ in range(2)]
    everything = [orders, *names]

    def fence_in_turns(me: int) -> list[control.Ownership]:
        wrong: list[control.Ownership] = []
        for turn in range(4):
            token, session = new_token(), 4_400_000 + 100 * me + turn
            for _ in range(2):  # the second time by a new connection, when the first may be gone or severed
                try:
                    with OwnClient(node.bootstrap) as own:
                        told = own.own(*everything, mode=FENCING, token=token, producer_id=session)
                except ConnectionError:
                    continue  # severed before its answer
                if told.error == control.NONE:
                    wrong += [each for each in told.ownerships if each.owner_session != f"pid:{session}"]
        return wrong

    with ThreadPoolExecutor(6) as threads:
        assert not [told for wrong in threads.map(fence_in_turns, range(6)) for told in wrong]
    with OwnClient(node.bootstrap) as observer:
        wait_for(lambda: not any(observer.owner(each).owner_session for each in everything), "all to be free")

"""A Redis that is really gone, and comes back."""

from __future__ import annotations

import pytest

from sidecar.access.prospects import Prospect
from sidecar.local.ports import free_ports
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.v1 import control_pb2 as control
from tests.conftest import OwnValkey, Unique
from tests.kafka.resources.room import open_room, wish
from tests.kafka.resources.test_coordination import answer_of
from tests.services import Services


async def test_owners_outlive_redis(services: Services, own_valkey: OwnValkey, unique: Unique) -> None:
    valkey = own_valkey(port=free_ports(1)[0])  # it comes back at the same one
    async with open_room(services.kafka_bootstrap, valkey.url, unique("claims")) as room:
        billing, rival = room.caller(), room.caller("rival")
        request = billing.request(wish("leader"), wish("other"))
        await billing.ask(request)
        valkey.stop()
        with pytest.raises(KafkaError) as refused:
            await rival.own(wish("leader"), mode=control.EXCLUSIVE_WITH_FENCING)
        assert refused.value.code == ErrorCode.LEADER_NOT_AVAILABLE
        assert (await billing.ask(request)).prospect is Prospect.READY
        await room.coordinator.release(request.token, [wish("other").key])
        assert room.owners == {"leader": (billing.session, 1)}
        assert not billing.severed
        valkey.start()
        assert await answer_of(rival, "leader", mode=control.EXCLUSIVE_WITH_FENCING) == [2]
        assert billing.severed
        assert len(room.told.epochs) == 1

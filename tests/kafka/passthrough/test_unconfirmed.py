"""Records sent with acks=0 by a client that closes at once: they arrive, as they do without a node."""

import socket

from tests.conftest import StartNode
from tests.kafka.exclusive.producers import unconfirmed_produce
from tests.logs import read_log
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

_CLIENTS = 30


def test_records_of_a_client_that_closes_right_after_sending_arrive(
    services: Services, node_process: StartNode
) -> None:
    topic, node = create_topic(services.kafka_bootstrap, partitions=1), node_process()
    host, port = node.bootstrap.rsplit(":", 1)
    for number in range(_CLIENTS):
        with socket.create_connection((host, int(port)), timeout=10) as client:
            client.sendall(unconfirmed_produce(topic, b"%d" % number))
    wait_for(lambda: len(read_log(services.kafka_bootstrap, topic)) == _CLIENTS, "every record")

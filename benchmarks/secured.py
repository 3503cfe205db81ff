"""`python -m benchmarks.secured`: what TLS and logins cost a node, in CPU seconds of its process.

One broker with a listener of each kind, three nodes in front of its listener without TLS, which differ in their own
listeners alone: PLAINTEXT, SSL, SASL_SSL. Two more log in at the broker, one of them by tokens of its clients. Records
pass all of them in turn, so that a busy machine meets them alike. CPU seconds say what the work costs whoever else is
busy; latency does not, and is told with that of the broker itself.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclOperation, ResourceType

from sidecar.local import Valkey
from sidecar.local.ports import HOST
from sidecar.security.credentials import PasswordCredentials
from sidecar.security.tls import TlsFiles, client_context
from sidecar.security.users import user_line
from tests.kafka.security.secured import NODE, PASSWORD, Secured, Wire, secured_kafka
from tests.kafka.security.test_listener import allow
from tests.nodes import NodeProcess

if TYPE_CHECKING:
    from confluent_kafka import Message

BARE: Final = {"PLAINTEXT": False, "SSL": True}
KINDS: Final = ("PLAINTEXT", "SSL", "SASL_SSL")
UPSTREAM: Final = ("relaying", "by token")
"""Nodes that log in at the broker: clients' connections as the node, and by a delegation token of the client."""
RECORD_BYTES: Final = 10_000
_TICKS: Final = 100
_ALICE: Final = "alice"


def cpu_s(node: NodeProcess) -> float:
    """CPU seconds of a node's process since it began."""
    fields = Path(f"/proc/{node.child.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


class Bench:
    """A broker, the nodes, and what clients have to be told."""

    def __init__(self, secured: Secured, directory: Path, stack: ExitStack) -> None:
        self.secured = secured
        certificate, key = secured.authority.issue("node", file="node")
        users = directory / "users.toml"
        users.write_text(f"[users]\n{user_line(_ALICE, PASSWORD)}\n")
        valkey = stack.enter_context(Valkey(directory / "valkey"))
        tls = {"SSL_CERTIFICATE": str(certificate), "SSL_KEY": str(key), "AUTHORIZER": "none"}
        relay = {
            "KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT",
            "KAFKA_SASL_MECHANISM": "PLAIN",
            "KAFKA_SASL_USERNAME": NODE,
            "KAFKA_SASL_PASSWORD": PASSWORD,
        }
        own = {"SASL_AUTHENTICATION": "file", "SASL_USERS_FILE": str(users)}
        settings: dict[str, dict[str, str]] = {
            "PLAINTEXT": {},
            "SSL": {"SECURITY_PROTOCOL": "SSL", **tls},
            "SASL_SSL": {"SECURITY_PROTOCOL": "SASL_SSL", **tls, **own},
            "relaying": {"SECURITY_PROTOCOL": "SASL_SSL", **tls, **relay},
            "by token": {
                "SECURITY_PROTOCOL": "SASL_SSL",
                **tls,
                **relay,
                "AUTHORIZER": "kafka",
                "KAFKA_DELEGATION_TOKENS": "SCRAM-SHA-256",
            },
        }
        self.nodes = {}
        for number, (name, given) in enumerate(settings.items(), 1):
            port = secured.ports["SASL_PLAINTEXT" if name in UPSTREAM else "PLAINTEXT"]
            node = NodeProcess(
                directory, f"{HOST}:{port}", valkey.url, cluster=f"bench-{number}", node_id=number, **given
            )
            stack.callback(node.stop)
            self.nodes[name] = node.start()

    def access(self, kind: str, bootstrap: str) -> dict[str, Any]:
        """Librdkafka's settings for a listener of a kind."""
        found: dict[str, Any] = {"bootstrap.servers": bootstrap, "security.protocol": kind}
        if "SSL" in kind:
            found["ssl.ca.location"] = str(self.secured.authority.ca)
        if "SASL" in kind:
            found |= {"sasl.mechanism": "SCRAM-SHA-256", "sasl.username": _ALICE, "sasl.password": PASSWORD}
        return found

    def through(self, kind: str, topic: str, megabytes: int) -> tuple[float, float]:
        """CPU seconds per GB of the node, for records that are written and then read."""
        node = self.nodes[kind]
        count = megabytes * 1_000_000 // RECORD_BYTES
        began = cpu_s(node)
        producer = Producer({**self.access(kind, node.bootstrap), "batch.size": 500_000, "linger.ms": 20})
        for _ in range(count):
            while True:
                try:
                    producer.produce(topic, bytes(RECORD_BYTES))
                    break
                except BufferError:
                    producer.poll(0.1)
            producer.poll(0)
        assert producer.flush(120) == 0
        written = cpu_s(node)
        group = f"{topic}-{kind}"
        consumer = Consumer(
            {**self.access(kind, node.bootstrap), "group.id": group, "auto.offset.reset": "earliest",
             "fetch.message.max.bytes": 4_000_000, "enable.auto.commit": False}
        )  # fmt: skip
        consumer.subscribe([topic])
        found = 0
        while found < count:
            found += len(consumer.consume(1_000, 1.0))
        consumer.close()
        gigabytes = count * RECORD_BYTES / 1e9
        return (written - began) / gigabytes, (cpu_s(node) - written) / gigabytes

    def p50_ms(self, kind: str, bootstrap: str, topic: str, times: int) -> float:
        """Of one record at a time, acks=1, in ms."""
        producer = Producer({**self.access(kind, bootstrap), "linger.ms": 0, "acks": 1})
        taken: list[float] = []
        for _ in range(times):
            told: list[Message] = []
            began = time.perf_counter()
            producer.produce(topic, bytes(100), on_delivery=lambda _, message, told=told: told.append(message))
            while not told:
                producer.poll(1)
            taken.append((time.perf_counter() - began) * 1000)
        return statistics.median(taken[times // 10 :])

    def newcomers_ms(self, name: str, topic: str, times: int) -> float:
        """CPU ms of the node for a client that connects with TLS and SCRAM, has it connect to the broker, and writes a
        record; the mean of so many, one after the other.
        """
        node = self.nodes[name]
        self.p50_ms("SASL_SSL", node.bootstrap, topic, 1)  # for this user the node has a token from here on
        began = cpu_s(node)
        for _ in range(times):
            self.p50_ms("SASL_SSL", node.bootstrap, topic, 1)
        return 1000 * (cpu_s(node) - began) / times

    async def logins(self, name: str, mechanism: str, times: int) -> float:
        """CPU seconds of the node for a connection with TLS and a login; the mean of so many, one after the other."""
        node = self.nodes[name]
        context = client_context(TlsFiles(ca=self.secured.authority.ca))
        credentials = PasswordCredentials(mechanism, _ALICE, PASSWORD)
        host, port = node.bootstrap.split(":")
        began = cpu_s(node)
        for _ in range(times):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            await Wire(reader, writer).login(credentials)
            writer.transport.abort()
        return (cpu_s(node) - began) / times


_BARE: Final = """
import asyncio, resource, ssl, sys
import uvloop

class Receiver(asyncio.BufferedProtocol):
    buffer = bytearray(1 << 18)
    def get_buffer(self, sizehint):
        return self.buffer
    def buffer_updated(self, nbytes):
        pass
    def connection_lost(self, exc):
        ended.set_result(None)

async def main():
    global ended
    loop = asyncio.get_running_loop()
    ended = loop.create_future()
    context = None
    if len(sys.argv) > 1:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(*sys.argv[1:])
    server = await loop.create_server(Receiver, "127.0.0.1", 0, ssl=context)
    print(server.sockets[0].getsockname()[1], flush=True)
    await ended
    used = resource.getrusage(resource.RUSAGE_SELF)
    print(used.ru_utime + used.ru_stime, flush=True)

uvloop.run(main())
"""


def bare(secured: Secured, megabytes: int, *, tls: bool) -> float:
    """CPU seconds of a process that does nothing but start, and receive so much: the least that anybody pays."""
    pair = [str(path) for path in secured.authority.issue("bare", file="bare")] if tls else []
    with subprocess.Popen([sys.executable, "-c", _BARE, *pair], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        with socket.create_connection((HOST, int(process.stdout.readline()))) as line:
            to: Any = line
            if tls:
                context = ssl.create_default_context(cafile=str(secured.authority.ca))
                to = context.wrap_socket(line, server_hostname=HOST)
            for _ in range(megabytes):
                to.sendall(bytes(1_000_000))
            to.close()
        return float(process.stdout.readline())


def main() -> None:
    """As the module says; JSON on stdout."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.secured")
    parser.add_argument("--megabytes", type=int, default=200, help="in each round, through each node")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--logins", type=int, default=300)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as made, ExitStack() as stack:
        directory = Path(made)
        secured = stack.enter_context(secured_kafka(directory, delegation_token_secret_key=PASSWORD))
        secured.scram_user(_ALICE, "SCRAM-SHA-256")
        bench = Bench(secured, directory, stack)
        rounds: dict[str, list[tuple[float, float]]] = {kind: [] for kind in KINDS}
        for number in range(asked.rounds):
            for kind in KINDS:
                topic = f"gigabytes-{kind.lower()}-{number}"
                secured.topics(topic)
                rounds[kind].append(bench.through(kind, topic, asked.megabytes))
        secured.topics("latency", "hers")
        allow(secured, ResourceType.TOPIC, "hers", AclOperation.WRITE, AclOperation.DESCRIBE)
        plain = f"{HOST}:{secured.ports['PLAINTEXT']}"
        found: dict[str, Any] = {
            "produce, CPU s/GB": {kind: statistics.median(each[0] for each in rounds[kind]) for kind in KINDS},
            "consume, CPU s/GB": {kind: statistics.median(each[1] for each in rounds[kind]) for kind in KINDS},
            "bare receiver, CPU s/GB": {
                name: bare(secured, 1_000, tls=tls) - bare(secured, 0, tls=tls) for name, tls in BARE.items()
            },
            "p50 ms, broker without TLS": bench.p50_ms("PLAINTEXT", plain, "latency", 500),
            "p50 ms": {kind: bench.p50_ms(kind, bench.nodes[kind].bootstrap, "latency", 500) for kind in KINDS},
            "p50 ms, node that logs in": {
                name: bench.p50_ms("SASL_SSL", bench.nodes[name].bootstrap, "hers", 500) for name in UPSTREAM
            },
            "CPU ms per client with one record": {
                name: bench.newcomers_ms(name, "hers", asked.logins // 3) for name in UPSTREAM
            },
            "CPU ms per login": {
                f"{name}, {mechanism}": 1000 * asyncio.run(bench.logins(name, mechanism, asked.logins))
                for name in ("SASL_SSL", *UPSTREAM)
                for mechanism in ("PLAIN", "SCRAM-SHA-256")
            },
        }
        print(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()

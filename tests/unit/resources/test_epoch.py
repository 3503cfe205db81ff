"""Fencing tokens: they rise with every claim, whatever is let go of, compacted, taken over or lost in between."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.changelog import MASTER_SLOT, Key, Kind, Record, View, claim_key
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.resources.epoch import CLAIMS, fencing_base, fencing_token
from sidecar.v1 import control_pb2 as control
from sidecar.v1 import state_pb2 as state

STEPS = ("claim", "let go", "restart", "take over", "compact", "an older version takes over", "create anew", "rotate")


def key_of(name: str) -> Key:
    return claim_key("", control.Resource(name=name))


class Cluster:
    """An ownership topic, and the view of whoever coordinates; the broker's time rises with each step."""

    def __init__(self) -> None:
        self.now_ms = 1_700_000_000_000
        self.writer = Stamp(ProducerId(1), ProducerEpoch(0))
        self.log: list[tuple[int, int, Stamp, Record]] = []
        self.end = 0
        self.view = View()
        self.open()

    def append(self, record: Record) -> None:
        self.log.append((self.end, self.now_ms, self.writer, record))
        self.end += 1
        self.read(self.log[-1])

    def read(self, entry: tuple[int, int, Stamp, Record]) -> None:
        offset, at_ms, writer, record = entry
        self.view.note_writer(writer)
        self.view.apply(Offset(offset), at_ms, writer, record.encode())

    def open(self, *, older: bool = False) -> None:
        """A coordinator's epoch, behind its fence."""
        found = self.view.serving(CLAIMS)
        self.writer = Stamp(self.writer.producer_id, ProducerEpoch(self.writer.epoch + 1))
        self.end += 1  # the marker
        base = 0 if older else fencing_base(found)
        self.append(Record(Key(Kind.SERVING, CLAIMS, MASTER_SLOT), state.Serving(producer_id=1, fencing_base=base)))

    def claim(self, name: str) -> int:
        key = key_of(name)
        self.append(Record(key, state.Claim(resource=control.Resource(name=name), generation=1)))
        entry = self.view.claim(key)
        assert entry is not None
        return fencing_token(entry, self.view.serving(CLAIMS))

    def do(self, step: str) -> None:
        self.now_ms += 1
        match step:
            case "let go":
                for entry in list(self.view.claims()):
                    self.append(Record(entry.key, None))
            case "restart":
                self.view = View()
                for entry in self.log:
                    self.read(entry)
            case "take over":
                self.open()
            case "compact":
                newest = {entry[3].key: entry for entry in self.log}  # by offset they stay in order
                self.log = sorted(entry for entry in newest.values() if entry[3].value is not None)
                self.do("restart")
            case "an older version takes over":
                self.open(older=True)
            case "create anew":
                self.view, self.log, self.end = View(), [], 0
                self.open()
            case _:  # another producer id
                self.writer = Stamp(ProducerId(self.writer.producer_id + 1), ProducerEpoch(0))
                self.open()


@given(st.lists(st.sampled_from(STEPS), max_size=30))
def test_fencing_tokens_rise(steps: list[str]) -> None:
    cluster, highest = Cluster(), 0
    for step in steps:
        if step != "claim":
            cluster.do(step)
            continue
        for name in ("scheduler", "other"):
            token = cluster.claim(name)
            assert token > highest
            highest = token


def test_every_node_gives_a_claim_the_same_token_as_long_as_it_is_held() -> None:
    cluster = Cluster()
    token = cluster.claim("scheduler")
    for step in ("take over", "compact", "take over", "restart"):
        cluster.do(step)
        entry = cluster.view.claim(key_of("scheduler"))
        assert entry is not None
        assert fencing_token(entry, cluster.view.serving(CLAIMS)) == token


def test_a_claim_without_a_coordinator_has_no_token() -> None:
    cluster = Cluster()
    cluster.claim("scheduler")
    (entry,) = cluster.view.claims()
    assert fencing_token(entry, None) == 0

"""One broker process: its image of the cluster, its replicas, its connections, and how it dies (`KafkaBroker`,
`BrokerServer`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from sidecar.protocol.primitives import MalformedFrameError
from tests.sim.kafka import cleaner, errors, refusals
from tests.sim.kafka.channel import Channel, Request
from tests.sim.kafka.controller import CONTROLLER
from tests.sim.kafka.coordinator import Transactions
from tests.sim.kafka.feed import Feed
from tests.sim.kafka.groups import Groups
from tests.sim.kafka.replica import Disk, Replica
from tests.sim.kafka.tables import served
from tests.sim.kafka.topics import CONSUMER_OFFSETS, TRANSACTION_STATE, Image, TopicConfig

if TYPE_CHECKING:
    from tests.sim.kafka.cluster import Cluster
    from tests.sim.kafka.settings import Cancellable, Peer

Handler = Callable[["Broker", Request], object]
HANDLERS: dict[int, Handler] = {}
"""By API key; the `apis_*` modules enter theirs."""


def serves(key: int) -> Callable[[Handler], Handler]:
    """Enter a handler for an API."""

    def enter(handler: Handler) -> Handler:
        HANDLERS[key] = handler
        return handler

    return enter


class Broker:
    """`life` counts its processes. `skew_ms` is how far its clock is ahead of the others'."""

    def __init__(self, cluster: Cluster, broker_id: int) -> None:
        self.cluster = cluster
        self.id = broker_id
        self.address = (cluster.settings.hosts.format(broker_id), cluster.settings.port)
        self.life = 1
        self.alive = True
        self.listening = True
        self.frozen = False
        self.skew_ms = 0
        self.image = self.applied = Image({}, frozenset(), 0)
        """What clients see, and what the replicas act on already."""
        self.former: dict[str, dict[str, str]] = {}
        """By name of a topic: settings of deleted topics of that name, which this process took over as it started."""
        self.disks: dict[tuple[bytes, int], Disk] = {}
        self.replicas: dict[tuple[bytes, int], Replica] = {}
        self.channels: set[Channel] = set()
        self.transactions = Transactions(self)
        self.groups = Groups(self)
        self.feed = Feed(self)
        self.refusals: dict[int, list[refusals.Refusal]] = {}
        self.empty = 0
        self.keeps_back: Callable[[Request], bool] | None = None
        self.watchers: list[Callable[[Request], None]] = []
        """Called as a request is to be answered."""
        self.kept: list[Callable[[], None]] = []
        self._held: list[tuple[Callable[..., object], tuple[Any, ...]]] = []
        self._connections = 0

    def __repr__(self) -> str:
        return f"broker {self.id}"

    # Time ----------------------------------------------------------------------------------------------------------

    def wall_ms(self) -> int:
        return self.cluster.scheduler.wall_ms() + self.skew_ms

    def later(self, delay: float, call: Callable[..., object], *args: Any) -> Cancellable:
        """Call once, unless this process has ended by then; a frozen process does it when it goes on."""
        return self.cluster.scheduler.call_later(delay, self.run, self.life, call, args)

    def run(self, life: int, call: Callable[..., object], args: tuple[Any, ...]) -> None:
        if life != self.life or not self.alive:
            return
        if self.frozen:
            self._held.append((call, args))
        else:
            call(*args)

    def trace(self, what: str, *about: object) -> None:
        if self.cluster.trace is not None:
            told = " ".join(str(each) for each in about)
            self.cluster.trace(self.cluster.scheduler.now(), f"kafka-{self.id} {what} {told}")

    # Metadata ------------------------------------------------------------------------------------------------------

    def read(self, image: Image) -> Image:
        """The image as this broker has it: settings that it took over as it started stay until they are set anew, or
        the topic is deleted (`_catch_up`).
        """
        if not self.former:
            return image
        topics = dict(image.topics)
        for name in list(self.former):
            topic = topics.get(name)
            if topic is None:
                del self.former[name]
                continue
            left = self.former[name]
            for setting in topic.config.own.keys() & left.keys():
                del left[setting]
            if not left:
                del self.former[name]
                continue
            config = TopicConfig(self.cluster.settings.defaults(), {**left, **topic.config.own})
            topics[name] = topic._replace(config=config)
        return Image(topics, image.live, image.version)

    def apply(self, image: Image, changed: set[str]) -> None:
        """A newer image: replicas come, go, lead and follow (`BrokerMetadataPublisher`)."""
        old, self.applied = self.applied, image
        if image.version > self.image.version:
            self.image = image
        for name in sorted(changed):
            new, known = image.topics.get(name), old.topics.get(name)
            if known is not None and (new is None or new.id != known.id):
                for index in range(len(known.partitions)):
                    self._drop((known.id, index))
                self.groups.topic_deleted(name)
            if new is None:
                continue
            for index, partition in enumerate(new.partitions):
                key = new.id, index
                if self.id not in partition.replicas:
                    self._drop(key)
                else:
                    replica = self.replicas.get(key)
                    if replica is None:
                        disk = self.disks.setdefault(key, Disk())
                        replica = self.replicas[key] = Replica(self, new, index, disk)
                    replica.apply(new, partition)
        if image.live - old.live:
            for replica in self.replicas.values():
                if replica.leading:
                    replica.followers.expand()

    def _drop(self, key: tuple[bytes, int]) -> None:
        replica = self.replicas.pop(key, None)
        if replica is not None:
            replica.remove()
        self.disks.pop(key, None)

    def hosted(self, topic: str, index: int) -> Replica | None:
        """The replica here of a partition by name."""
        found = self.image.topics.get(topic)
        return None if found is None else self.replicas.get((found.id, index))

    def coordinators_lead(self, replica: Replica) -> None:
        if replica.topic.name == TRANSACTION_STATE:
            self.transactions.elected(replica)
        elif replica.topic.name == CONSUMER_OFFSETS:
            self.groups.elected(replica)

    def coordinators_resign(self, replica: Replica) -> None:
        if replica.topic.name == TRANSACTION_STATE:
            self.transactions.resigned(replica)
        elif replica.topic.name == CONSUMER_OFFSETS:
            self.groups.resigned(replica)

    # Clients -------------------------------------------------------------------------------------------------------

    def accept(self, peer: Peer) -> Channel:
        """A client has connected. Raises `ConnectionRefusedError`; a frozen process's kernel still accepts."""
        if not self.listening:
            raise ConnectionRefusedError(f"nobody listens at {self.address[0]}:{self.address[1]}")
        self._connections += 1
        channel = Channel(self, peer, self._connections)
        self.channels.add(channel)
        return channel

    def dispatch(self, request: Request) -> None:
        """Work on a request (`KafkaApis.handle`). What makes no sense ends its connection."""
        handler = HANDLERS.get(request.key)
        first, last = served(self.cluster.settings.version).get(request.key, (0, -1))
        if handler is None or (not first <= request.version <= last and request.key != 18):
            request.channel.close()
            return
        try:
            if request.key != 18:
                request.decode()
        except MalformedFrameError:
            request.channel.close()
            return
        if self.refusals and refusals.refused(self, request):
            return
        handler(self, request)

    # Life and death ------------------------------------------------------------------------------------------------

    @property
    def reachable(self) -> bool:
        """Whether heartbeats could reach the controller."""
        return self.alive and not self.frozen and not self.cluster.is_cut(CONTROLLER, self.id)

    def kill(self) -> None:
        """The process is gone: memory is lost; the log stays, as the page cache outlives a process."""
        if not self.alive:
            return
        self.cluster.effect("broker_killed")
        self._end()
        self.cluster.controller.lost(self.id)

    def stop(self) -> None:
        """A controlled shutdown: leadership goes first, and snapshots of the producers are written."""
        if not self.alive:
            return
        self.cluster.controller.fence(self.id)
        for replica in self.replicas.values():
            replica.producers.snapshot(replica.log.end)
            replica.disk.snapshots = replica.producers.snapshots
            replica.disk.checkpoint, replica.disk.start = replica.high_watermark, replica.log.start
        self._end()

    def _end(self) -> None:
        now, interval = self.cluster.scheduler.now(), self.cluster.settings.start_checkpoint
        for replica in self.replicas.values():
            replica.disk.snapshots = replica.producers.snapshots
            replica.disk.checkpoint_start(now, interval)
            replica.gone, replica.leading = True, False
        self.alive = self.listening = self.frozen = False
        self.life += 1
        self._held.clear()
        self.replicas.clear()
        self.transactions = Transactions(self)
        self.groups = Groups(self)
        self.feed.restart()
        channels, self.channels = self.channels, set()
        for channel in sorted(channels, key=lambda each: each.number):
            channel.open = False
            channel._peer.close()

    def start(self) -> None:
        """A new process with the old disk. It serves once it has registered and caught up: not before the session of
        the old process has ended (`DUPLICATE_BROKER_REGISTRATION`).
        """
        if self.alive:
            return
        self.cluster.effect("broker_started")
        self.life += 1
        self.alive = True
        self.image = self.applied = Image({}, frozenset(), 0)
        self.register()

    def register(self) -> None:
        """Heartbeats reach the controller again; asked by the controller too when a session has ended."""
        if not self.reachable:
            return
        controller = self.cluster.controller
        if self.listening:
            controller.heard(self.id)
        elif self.id not in controller.live:
            settings = self.cluster.settings
            self.later(self.cluster.delay(settings.commit) + self.cluster.delay(settings.metadata), self._catch_up)

    def _catch_up(self) -> None:
        if self.listening:
            return
        controller = self.cluster.controller
        # A broker that starts reads all changes as one. The end of a topic does not remove settings that are set in the
        # same changes (`ConfigurationsDelta.replay(RemoveTopicRecord)`, read in 3.9.1 to 4.4.0).
        self.former = {name: dict(controller.written[name]) for name in controller.topics if name in controller.written}
        image = self.read(controller.image())
        known = {topic.id: len(topic.partitions) for topic in image.topics.values()}
        for key in [key for key in self.disks if key[0] not in known]:
            del self.disks[key]
        self.listening = True
        self.apply(image, set(image.topics))
        self.housekeeping()
        controller.heard(self.id)

    def freeze(self) -> None:
        """SIGSTOP, or a pause of its virtual machine: connections stay, nothing happens, the controller gives up on it
        after a session.
        """
        if self.alive and not self.frozen:
            self.cluster.effect("broker_frozen")
            self.frozen = True
            self.cluster.controller.lost(self.id)

    def thaw(self) -> None:
        """It goes on with what it had begun, in any order, before it hears what has changed."""
        if not self.frozen:
            return
        self.frozen = False
        self.cluster.effect("broker_thawed")
        held, self._held = self._held, []
        for call, args in held:
            self.later(self.cluster.delay(self.cluster.settings.serve), call, *args)
        self.later(self.cluster.delay(self.cluster.settings.link), self.register)

    # Faults of one broker ------------------------------------------------------------------------------------------

    def metadata_lag(self, seconds: float) -> None:
        """Changes of the controller reach this broker later by so much; 0 ends it for what comes then."""
        self.feed.lag = seconds

    def refuse(self, api_key: int, error: int, times: int = 1, after_append: bool = False) -> None:
        """Answer the next requests of an API with an error; `after_append`: and carry them out all the same."""
        assert api_key or not after_append or error in errors.BEHIND_APPEND, error
        self.refusals.setdefault(api_key, []).append(refusals.Refusal(error, times, after_append))

    def throttle(self, api_key: int, milliseconds: int, times: int = 1) -> None:
        """Let quotas be exceeded: the answer says so, a Fetch's has no partitions, and the connection is muted
        (KIP-219).
        """
        self.refusals.setdefault(api_key, []).append(refusals.Refusal(0, times, False, milliseconds))

    def keep_back(self, is_held: Callable[[Request], bool]) -> None:
        """Keep answers back until `give_out`; what was asked for is done."""
        self.keeps_back = is_held

    def give_out(self) -> int:
        """Send what was kept back; how many answers that were."""
        self.keeps_back, kept, self.kept = None, self.kept, []
        for answer in kept:
            answer()
        return len(kept)

    def empty_fetches(self, times: int) -> None:
        """Answer the next fetches without records, though there are some."""
        self.empty += times

    # Housekeeping --------------------------------------------------------------------------------------------------

    def housekeeping(self) -> None:
        """Start the timers of a new process (`LogManager.startup`)."""
        settings = self.cluster.settings
        for interval, job in (
            (settings.expiration_check, self.expire_producers),
            (settings.retention_check, self._retain),
            (settings.cleaner_backoff, self._clean),
        ):
            if interval is not None:
                self._every(interval, job)

    def _every(self, interval: float, job: Callable[[], object]) -> None:
        def run() -> None:
            job()
            self.later(interval, run)

        self.later(interval * self.cluster.scheduler.rng.uniform(0.5, 1.0), run)

    def expire_producers(self) -> None:
        """`ProducerStateManager.removeExpiredProducers` in every log; the coordinator's ids as well."""
        if not self.alive or self.frozen:
            return
        now, expiration = self.wall_ms(), self.cluster.settings.producer_expiration_ms
        for replica in self.replicas.values():
            gone = replica.producers.expire(now, expiration) if replica.producers.entries else 0
            if gone:
                self.cluster.effects["producer_expired"] += gone
                self.trace("forgets", replica, f"{gone} producers")
        self.transactions.expire()

    def _retain(self) -> None:
        for replica in list(self.replicas.values()):
            cleaner.retain(replica)

    def _clean(self) -> None:
        for replica in list(self.replicas.values()):
            if replica.config.compacted and len(replica.log.rolls) > 1:
                cleaner.compact(replica, by_itself=True)

"""Begins and ends the deduplication of a topic by sequence ids: when its policy changes, and with each takeover."""

from collections.abc import Callable
from functools import partial

from sidecar.changelog import View
from sidecar.dedup.topic import TopicIds
from sidecar.exclusive.environment import Environment
from sidecar.takeover.slots import TakenSlot, writer_names


class PolicyIds:
    """The sequence ids of one topic; `now` is None if its policy has no deduplication."""

    def __init__(
        self,
        topic: str,
        environment: Environment,
        is_live: Callable[[str], bool],
        fence_wanted: Callable[[], None],
        *,
        by_partition: bool = False,
    ) -> None:
        """See `TopicIds`."""
        self._is_wanted = partial(environment.deduplicates, topic)
        self._new = partial(TopicIds, topic, environment.ids, is_live, fence_wanted, by_partition=by_partition)
        self._changelog = environment.changelog
        self._without = -1
        """The changelog position at which the topic was seen without sequence ids."""
        self.now = self._begin()

    def _begin(self) -> TopicIds | None:
        return self._new(since=self._without) if self._is_wanted() else None

    def follow_policy(self) -> bool:
        """Begin or end deduplication as the policy requires now. True if that changed: the topic then has to be fenced,
        as only after a fence everything that was forwarded before is in the log.
        """
        if (self.now is not None) is self._is_wanted():
            return False
        if self.now is not None:
            self.now.end()
            self._without = self._changelog.position
        self.now = self._begin()
        return True

    async def save(self) -> None:
        """Store the ids, because this node stops serving the topic."""
        if self.now is not None:
            try:
                await self.now.save_all()
            finally:
                self.now.end()


def begin_ids(ids: TopicIds, taken: TakenSlot, view: View) -> None:
    """Begin sequence ids under a slot that was taken. The fence settled what earlier epochs wrote; it is read before
    anything else is written.
    """
    names = writer_names(view, taken.scope.topic)
    if taken.scope.is_master:
        ids.begin(taken.topic_id, taken.stamp, taken.partitions, taken.ids_from or {}, names)
    else:
        ids.begin_slot(taken.stamp.producer_id, taken.partitions, names)

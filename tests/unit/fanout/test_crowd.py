"""Who reads what, against a model that counts anew each time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sidecar.fanout import crowd as module
from sidecar.fanout.crowd import Crowd

_PARTITIONS = st.sets(st.tuples(st.sampled_from([b"a", b"b"]), st.integers(0, 3)), min_size=1)
_STEPS = st.lists(st.tuples(st.integers(1, module.LEAST + 2), st.none() | _PARTITIONS), max_size=60)


@given(_STEPS)
def test_partitions_are_shared_while_enough_connections_that_read_them_stand(
    steps: list[tuple[int, set[tuple[bytes, int]] | None]],
) -> None:
    crowd, model = Crowd(), dict[int, set[tuple[bytes, int]]]()
    for connection, partitions in steps:
        if partitions is None:
            gone = model.pop(connection, set())
            alone = {each for each in gone if not any(each in reads for reads in model.values())}
            assert set(crowd.leaves(connection)) == alone
        else:
            model.setdefault(connection, set()).update(partitions)
            together = all(sum(each in reads for reads in model.values()) >= module.LEAST for each in partitions)
            assert crowd.gathers(connection, partitions) is together
            assert all(crowd.is_shared(*each) for each in partitions) is together
            assert crowd.reads_more(connection, len(partitions)) is (model[connection] != partitions)
        assert crowd.connections == len(model)


def test_what_one_connection_reads_is_remembered_within_bounds() -> None:
    crowd = Crowd()
    for first in range(0, module._REMEMBERED + 100, 100):
        crowd.gathers(1, [(b"t", index) for index in range(first, first + 100)])
    assert len(crowd.leaves(1)) == module._REMEMBERED
    assert crowd.leaves(1) == []

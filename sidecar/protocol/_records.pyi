from typing import Any

from sidecar.protocol._records_pure import Lists, Stretch, Walked
from sidecar.protocol.primitives import Octets

def summarise(
    records: Octets, count: int, id_header: bytes, name_header: bytes, dense: bool = True, /
) -> tuple[int, int, int]: ...
def walk(
    records: Octets, count: int, id_header: bytes, name_header: bytes, dense: bool = True, own: bytes | None = None, /
) -> list[Walked]: ...
def renumber(records: Octets, places: list[Any], /) -> bytearray: ...
def stretches(
    records: Octets, count: int, id_header: bytes, name_header: bytes, low: int, high: int, /
) -> list[Stretch]: ...
def unpack(
    records: Octets,
    count: int,
    id_header: bytes,
    name_header: bytes,
    low: int,
    high: int,
    wanted: int,
    into: Lists,
    most_headers: int,
    /,
) -> None: ...

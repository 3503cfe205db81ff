"""Free loopback ports for the embedded parts, below the kernel's range for outgoing connections.

A port is only known to be free at the moment it is tried: a caller that starts a server on one must be ready to try
another.
"""

import errno
import random
import socket
from collections.abc import Iterable

HOST = "127.0.0.1"
LOWEST = 20_000
HIGHEST = 32_767  # Linux gives outgoing connections 32768…60999 (net.ipv4.ip_local_port_range)

_handed_out: set[int] = set()


def is_free(port: int, host: str = HOST) -> bool:
    """Whether a server could listen on `host:port` now. Raises OSError if the address can never be used."""
    family, _, _, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(where)
            probe.listen(1)
        except OSError as error:
            if error.errno in {errno.EADDRINUSE, errno.EACCES}:
                return False
            raise
        return True


def is_open(port: int, host: str = HOST, timeout: float = 1.0) -> bool:
    """Whether a server accepts connections on `host:port`; waits at most `timeout` seconds."""
    try:
        with socket.create_connection((host, port), timeout):
            return True
    except OSError:
        return False


def free_ports(count: int, avoid: Iterable[int] = ()) -> list[int]:
    """Different free ports between `LOWEST` and `HIGHEST`, none of them given to another caller in this process.

    Raises OSError if 1,000 tries find too few.
    """
    found: list[int] = []
    avoided = set(avoid)
    chooser = random.SystemRandom()  # tests seed the common generator: parallel runs would choose the same ports
    for _ in range(1_000):
        if len(found) == count:
            break
        port = chooser.randint(LOWEST, HIGHEST)
        if port not in avoided and port not in _handed_out and is_free(port):
            _handed_out.add(port)
            found.append(port)
    if len(found) < count:
        raise OSError(errno.EADDRINUSE, f"no {count} free ports between {LOWEST} and {HIGHEST}")
    return found

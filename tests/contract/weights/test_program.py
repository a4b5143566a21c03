"""``flexinfer-fetch`` as the init container runs it."""

import asyncio
import base64
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hubs import Hub

from flexinfer.adapters.weights.present import check_present
from flexinfer.adapters.weights.secrets import read_secret
from flexinfer.core.lifecycle.fetching.failures import REMEDIES, FetchFailed, decode

DEADLINE = 90.0


async def start(hub: Hub, tmp: Path, *args: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable, "-c", "from flexinfer.cli import fetch; fetch()", *args,
        env={"PATH": "/usr/bin:/bin", "MODEL_CACHE_PATH": str(tmp / "cache"), "HF_ENDPOINT": hub.url,
             "FLEXINFER_TERMINATION_LOG": str(tmp / "log"), "FLEXINFER_FLOOR_GB": "0",
             "FLEXINFER_ATTEMPTS": "2"},
        stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip


async def fetch(hub: Hub, tmp: Path, *args: str) -> tuple[int, str]:
    process = await start(hub, tmp, *args)
    async with asyncio.timeout(DEADLINE):
        _, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, err.decode()


def names(folder: Path, pattern: str) -> Sequence[str]:
    return sorted(path.name for path in folder.glob(pattern))


async def test_a_model_comes_and_is_used_as_it_is_the_next_time(hub: Hub, tmp_path: Path) -> None:
    hub.files = {"o/g/m.Q4_0.gguf": b"GGUF" + bytes(1000)}
    assert (await fetch(hub, tmp_path, "hf://o/g:Q4_0", "--form", "gguf"))[0] == 0
    await hub.stop()

    assert (await fetch(hub, tmp_path, "hf://o/g:Q4_0", "--form", "gguf"))[0] == 0
    assert names(tmp_path / "cache" / "entries", "*/*.gguf") == ["m.Q4_0.gguf", "model.gguf"]
    [about] = (tmp_path / "cache" / "entries").glob("*/.flexinfer.json")
    assert json.loads(about.read_text())["source"] == "hf://o/g:Q4_0"


async def test_why_not_is_in_the_termination_log_and_on_stderr(hub: Hub, tmp_path: Path) -> None:
    code, err = await fetch(hub, tmp_path, "hf://o/none")
    failure = decode((tmp_path / "log").read_text())

    assert code == 1
    assert failure is not None
    assert failure.reason == "SourceNotFound"
    assert REMEDIES["SourceNotFound"] in err


async def test_a_secret_that_is_missing(hub: Hub, tmp_path: Path) -> None:
    (tmp_path / "secret").mkdir()
    told = ("--secret-dir", str(tmp_path / "secret"), "--secret-name", "hub-token")
    code, err = await fetch(hub, tmp_path, "hf://o/m", *told)

    assert (code, "Secret hub-token is not there" in err) == (1, True)
    assert hub.seen == []


def test_what_a_secret_may_hold(tmp_path: Path) -> None:
    assert read_secret(None, "", "r").empty
    (tmp_path / "token").write_text("hf_x\n")
    assert read_secret(tmp_path, "s", "").token == "hf_x"
    assert "hf_x" not in repr(read_secret(tmp_path, "s", ""))
    (tmp_path / "username").write_text("me")
    (tmp_path / "password").write_text("pass")
    assert read_secret(tmp_path, "s", "reg:5000").logins == {"reg:5000": ("me", "pass")}

    auth = base64.b64encode(b"you:word:with:colons").decode()
    auths = {"https://index.docker.io/v1/": {"username": "a", "password": "b"}, "reg:1": {"auth": auth}}
    (tmp_path / ".dockerconfigjson").write_text(json.dumps({"auths": auths}))
    logins = read_secret(tmp_path, "s", "r").logins
    assert (logins["registry-1.docker.io"], logins["reg:1"]) == (("a", "b"), ("you", "word:with:colons"))


@pytest.mark.parametrize(
    "text", ["{", "{}", '{"auths": [1]}', '{"auths": {"r": {"auth": "!"}}}', '{"auths": {"r": 1}}']
)
def test_a_secret_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    (tmp_path / ".dockerconfigjson").write_text(text)
    with pytest.raises(FetchFailed) as caught:
        read_secret(tmp_path, "s", "r")

    assert caught.value.reason == "SecretMissing"


async def test_it_stops_when_told_and_keeps_what_came(hub: Hub, tmp_path: Path) -> None:
    data = bytes(400_000)
    hub.files = {"o/m/a.safetensors": data}
    half_way = asyncio.Event()

    async def stall(request: web.Request) -> web.StreamResponse | None:
        if "/cdn/" not in request.path:
            return None
        answer = web.StreamResponse(headers={"Content-Length": str(len(data))})
        await answer.prepare(request)
        await answer.write(data[:300_000])
        half_way.set()
        await asyncio.Event().wait()
        return answer

    hub.faults = [stall]
    process = await start(hub, tmp_path, "hf://o/m")
    async with asyncio.timeout(DEADLINE):
        await half_way.wait()
        process.send_signal(signal.SIGTERM)
        await process.communicate()

    assert process.returncode == 143
    assert names(tmp_path / "cache", "entries/*") == []


def test_weights_on_a_claim_are_looked_at(tmp_path: Path) -> None:
    def problem(path: Path) -> str:
        try:
            check_present(path)
        except FetchFailed as err:
            return f"{err.reason}: {err.message}"
        return ""

    model = tmp_path / "model"
    model.mkdir()
    assert "is empty" in problem(model)
    index: dict[str, Any] = {"weight_map": {"a": "1.safetensors", "b": "2.safetensors"}}
    (model / "model.safetensors.index.json").write_text(json.dumps(index))
    (model / "1.safetensors").write_bytes(b"x")
    assert "1 of 2 files" in problem(model)
    (model / "2.safetensors").write_bytes(b"x")
    assert problem(model) == ""
    (model / "model.safetensors.index.json").write_text("[]")
    assert "BadArtifact" in problem(model)
    assert "SourceNotFound" in problem(tmp_path / "none.gguf")
    assert "SourceNotFound" in problem(tmp_path / "none")
    (tmp_path / "bad.gguf").write_bytes(b"nope")
    assert "no GGUF file" in problem(tmp_path / "bad.gguf")
    (tmp_path / "good.gguf").write_bytes(b"GGUF")
    assert problem(tmp_path / "good.gguf") == ""


async def test_wrong_settings_are_said_at_once(hub: Hub, tmp_path: Path) -> None:
    assert (await fetch(hub, tmp_path, "s3://bucket/x"))[0] == 2

"""What is fetched, from each kind of source, by its real protocol."""

import dataclasses
import errno
import io
import json
import struct
import tarfile
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from hubs import COMMIT, Hub, at, cut, once, sha256, wrong

from flexinfer.adapters.weights.disk import Cache
from flexinfer.adapters.weights.shelf import Shelf
from flexinfer.adapters.weights.web import Credentials
from flexinfer.core.lifecycle.fetching.entries import PARTS, entry_of
from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.sources import parse_source

WEIGHTS = bytes(range(256)) * 4000
GGUF = b"GGUF" + WEIGHTS
TAR = "application/vnd.oci.image.layer.v1.tar"


def tree(folder: Path) -> dict[str, bytes]:
    return {
        str(p.relative_to(folder)): p.read_bytes()
        for p in sorted(folder.rglob("*"))
        if p.is_file() and p.name != ".flexinfer.json"
    }


def spoil(cache: Path) -> None:
    [part] = cache.glob("parts/*/blobs/*")
    part.write_bytes(b"?" * 5000)


def found(folder: Path, name: str) -> list[Path]:
    return list(folder.rglob(name))


async def get(fetcher: Any, text: str, form: str = "folder", backend: str = "vllm", **rest: Any) -> Path:
    one = fetcher(**rest)
    entry = await one.fetch(parse_source(text, backend), form)
    return Path(one.cache.root / entry.path)


async def test_a_checkpoint_comes_in_one_format_at_one_commit(hub: Hub, fetcher: Any) -> None:
    kept = {"config.json": b"{}", "model.safetensors": WEIGHTS, "sub/tokenizer.json": b"[]"}
    rest = {"pytorch_model.bin": WEIGHTS, "original/consolidated.pth": b"x", ".gitattributes": b"x"}
    hub.files = {f"o/m/{name}": data for name, data in (kept | rest).items()}
    hub.page = 2
    folder = await get(fetcher, "hf://o/m@main")

    assert tree(folder) == kept
    about = json.loads((folder / ".flexinfer.json").read_text())
    assert (about["source"], about["revision"], about["bytes"]) == ("hf://o/m@main", COMMIT, len(WEIGHTS) + 4)
    assert not (folder.parents[1] / PARTS / folder.name).exists()


@pytest.mark.parametrize(
    ("text", "name"),
    [("hf://o/g:Q4_0", "model.gguf"), ("hf://o/g/m.Q8_0.gguf", "m.Q8_0.gguf"), ("hf://o/g", "model.gguf")],
)
async def test_one_gguf_file_under_a_name_known_beforehand(hub: Hub, fetcher: Any, text: str, name: str) -> None:
    hub.files = {
        "o/g/m.Q4_0.gguf": GGUF, "o/g/m.Q8_0.gguf": GGUF + b"8", "o/g/m.Q4_K_M.gguf": GGUF + b"k",
        "o/g/mmproj-m.Q4_0.gguf": b"GGUF",
    }  # fmt: skip
    path = await get(fetcher, text, "gguf", "llamacpp")

    assert path.name == name
    assert path.read_bytes() == {"hf://o/g:Q4_0": GGUF, "hf://o/g": GGUF + b"k"}.get(text, GGUF + b"8")


def header(tensors: int) -> bytes:
    """The least a GGUF header has to say; one matrix of 8 × ``tensors``."""
    sizes = {"block_count": 2, "embedding_length": 64, "attention.head_count": 4, "attention.head_count_kv": 2}
    out = b"GGUF" + struct.pack("<IQQ", 3, 1, len(sizes) + 1)
    for key, value in {"general.architecture": "llama", **{f"llama.{k}": v for k, v in sizes.items()}}.items():
        out += struct.pack("<Q", len(key)) + key.encode()
        if isinstance(value, str):
            out += struct.pack("<IQ", 8, len(value)) + value.encode()
        else:
            out += struct.pack("<II", 4, value)
    return out + struct.pack("<Q", 1) + b"t" + struct.pack("<I2QIQ", 2, 8, tensors, 2, 0)


async def test_what_the_file_says_of_itself_is_kept_with_it(hub: Hub, fetcher: Any, tmp_path: Path) -> None:
    names = [f"big-0000{n}-of-00002.gguf" for n in (1, 2)]
    first, second = header(10) + WEIGHTS, header(3) + WEIGHTS
    hub.files = dict(zip([f"o/g/{name}" for name in names], (first, second), strict=True))
    hub.files["o/other/m.Q8_0.gguf"] = GGUF
    hub.artifact("library/tiny:1b", [(first, "application/vnd.ollama.image.model", {})], b'{"model_format":"gguf"}')
    await get(fetcher, "hf://o/g/big-00001-of-00002.gguf", "gguf", "llamacpp")
    await get(fetcher, "hf://o/other", "gguf", "llamacpp")
    await get(fetcher, "ollama://tiny:1b", "store", "ollama")
    told = {one.source: one.gguf for one in Shelf(tmp_path / "cache").entries()}

    whole = told["hf://o/g/big-00001-of-00002.gguf"]
    assert whole is not None
    assert (whole.parameters, whole.file_bytes, whole.kv_heads) == (8 * 13, len(first) + len(second), 2)
    assert told["hf://o/other"] is None, "a header nobody understands keeps no model from being used"
    stored = told["ollama://tiny:1b"]
    assert stored is not None
    assert stored.parameters == 8 * 10


async def test_all_parts_of_a_split_file(hub: Hub, fetcher: Any) -> None:
    names = [f"big-0000{n}-of-00003.gguf" for n in (1, 2, 3)]
    hub.files = {f"o/g/{name}": GGUF for name in names} | {"o/g/other-00001-of-00002.gguf": b"x"}
    path = await get(fetcher, "hf://o/g/big-00001-of-00003.gguf", "gguf", "llamacpp")

    assert sorted(tree(path.parent)) == names


async def test_an_artifact_of_files_and_packed_folders(hub: Hub, fetcher: Any) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as out:
        info = tarfile.TarInfo("model/config.json")
        info.size = 2
        out.addfile(info, io.BytesIO(b"{}"))
    hub.artifact("m/qwen:1", [
        (WEIGHTS, TAR, {"org.opencontainers.image.title": "model/model.safetensors"}),
        (packed.getvalue(), TAR + "+gzip", {"org.opencontainers.image.title": "model",
                                            "io.deis.oras.content.unpack": "true"}),
    ])  # fmt: skip
    path = await get(fetcher, f"oci://{hub.host}/m/qwen:1!model")

    assert tree(path) == {"config.json": b"{}", "model.safetensors": WEIGHTS}


async def test_an_index_leads_to_the_manifest_for_linux(hub: Hub, fetcher: Any) -> None:
    digest = hub.artifact("m/q:inner", [(GGUF, "application/vnd.docker.ai.gguf.v3", {})])
    index = {
        "mediaType": "application/vnd.oci.image.index.v1+json",
        "manifests": [
            {"digest": sha256(b"windows"), "size": 1, "platform": {"os": "windows", "architecture": "amd64"}},
            {"digest": digest, "size": 1, "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
    hub.publish("m/q:1", json.dumps(index).encode())
    path = await get(fetcher, f"oci://{hub.host}/m/q:1", "gguf", "llamacpp")

    assert path.read_bytes() == GGUF


async def test_an_ollama_model_in_the_layout_ollama_reads(hub: Hub, fetcher: Any) -> None:
    hub.artifact("library/tiny:1b", [(GGUF, "application/vnd.ollama.image.model", {})], b'{"model_format":"gguf"}')
    root = await get(fetcher, "ollama://tiny:1b", "store", "ollama")
    files = tree(root)
    manifest = json.loads(files["manifests/registry.ollama.ai/library/tiny/1b"])

    for layer in [manifest["config"], *manifest["layers"]]:
        assert sha256(files["blobs/" + layer["digest"].replace(":", "-")]) == layer["digest"]


async def test_what_is_here_is_not_asked_for_again(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/config.json": b"{}"}
    await get(fetcher, "hf://o/m")
    hub.seen.clear()
    await get(fetcher, "hf://o/m")

    assert hub.seen == []


# --- trouble on the way ------------------------------------------------------------------------------------------


async def test_it_goes_on_where_it_broke_off(hub: Hub, fetcher: Any, waits: list[float]) -> None:
    hub.files = {"o/m/model.safetensors": WEIGHTS}
    hub.faults = [once(cut("/cdn/", WEIGHTS, 300_000), 2)]
    folder = await get(fetcher, "hf://o/m")

    assert tree(folder)["model.safetensors"] == WEIGHTS
    ranges = [asked for path, asked, _ in hub.seen if "/cdn/" in path]
    assert ranges == ["", "bytes=300000-", "bytes=600000-"]
    assert sum(hub.sent.values()) == len(WEIGHTS) - 600_000
    assert len(waits) == 2


async def test_a_server_without_ranges_is_asked_from_the_start(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/model.safetensors": WEIGHTS}
    hub.ranges = False
    hub.faults = [once(cut("/cdn/", WEIGHTS, 300_000))]

    assert tree(await get(fetcher, "hf://o/m"))["model.safetensors"] == WEIGHTS


async def test_rate_limits_are_kept(hub: Hub, fetcher: Any, waits: list[float]) -> None:
    hub.files = {"o/m/config.json": b"{}"}
    hub.faults = [once(at("/cdn/", 429, **{"Retry-After": "7"})), once(at("/cdn/", 503))]
    await get(fetcher, "hf://o/m")

    assert waits[0] == 7.0
    assert len(waits) == 2


async def test_a_token_goes_to_the_hub_and_not_where_it_redirects(hub: Hub, fetcher: Any) -> None:
    other = await Hub(files={"o/m/config.json": b"{}"}).start()
    hub.files, hub.token = {"o/m/config.json": b"{}"}, "hf_secret"

    async def elsewhere(request: Any) -> Any:
        if "/resolve/" not in request.path:
            return None
        return web.Response(status=302, headers={"Location": f"{other.url}/cdn/o/m/config.json"})

    hub.faults = [elsewhere]
    try:
        await get(fetcher, "hf://o/m", credentials=Credentials("hf_secret"))
    finally:
        await other.stop()

    assert {authority for _, _, authority in hub.seen} == {"Bearer hf_secret"}
    assert {authority for _, _, authority in other.seen} == {""}


async def test_a_registry_says_where_tokens_are(hub: Hub, fetcher: Any) -> None:
    hub.artifact("m/q:1", [(GGUF, TAR, {"org.opencontainers.image.title": "q.gguf"})])
    hub.token, hub.login = "t0ken", ("me", "pass")
    path = await get(
        fetcher,
        f"oci://{hub.host}/m/q:1!q.gguf",
        "gguf",
        "llamacpp",
        credentials=Credentials("", {hub.host: hub.login}),
    )

    assert path.read_bytes() == GGUF


@pytest.mark.parametrize(
    ("text", "faults", "reason", "said"),
    [
        ("hf://o/none", [], "SourceNotFound", "answers 404"),
        ("hf://o/m", [at("/cdn/", 404)], "SourceNotFound", "answers 404"),
        ("hf://o/m", [at("/api/", 403)], "AccessDenied", "answers 403"),
        ("hf://o/m", [at("/api/", 401)], "AccessDenied", "answers 401"),
        ("hf://o/m", [at("/cdn/", 429)], "RateLimited", "too many requests"),
        ("hf://o/m", [at("/cdn/", 500)], "SourceUnavailable", "answers 500"),
        ("hf://o/m", [wrong("/cdn/", WEIGHTS[::-1])], "DigestMismatch", "is not sha256:"),
        ("hf://o/m", [wrong("/cdn/", WEIGHTS + b"x")], "DigestMismatch", "more than"),
        ("hf://o/m", [wrong("/tree/", b'[{"type":"file","path":"../x","size":1}]')], "BadArtifact", "../x"),
        ("hf://o/m", [wrong("/tree/", b"<html>")], "BadArtifact", "not JSON"),
        ("hf://o/m", [at("/cdn/", 302, Location="/cdn/again")], "SourceNotFound", "without end"),
        ("hf://o/m/none.gguf", [], "SourceNotFound", "no file none.gguf"),
    ],
)  # fmt: skip
async def test_what_cannot_be_had_has_a_reason_and_leaves_nothing_to_use(
    hub: Hub, fetcher: Any, text: str, faults: list[Any], reason: str, said: str
) -> None:
    hub.files, hub.faults = {"o/m/model.safetensors": WEIGHTS}, faults
    with pytest.raises(FetchFailed) as caught:
        await get(fetcher, text)

    assert (caught.value.reason, said in caught.value.message) == (reason, True), caught.value.message
    assert caught.value.remedy
    assert not fetcher().cache.has(entry_of(parse_source(text, "vllm"), "folder").name)


async def test_a_source_that_vanishes_half_way_and_comes_back(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/a.safetensors": WEIGHTS, "o/m/b.safetensors": GGUF}
    hub.faults = [at("/cdn/o/m/b", 404)]
    with pytest.raises(FetchFailed, match="404"):
        await get(fetcher, "hf://o/m")
    hub.faults = []
    hub.sent.clear()
    folder = await get(fetcher, "hf://o/m")

    assert tree(folder) == {"a.safetensors": WEIGHTS, "b.safetensors": GGUF}
    assert set(hub.sent) == {"/cdn/o/m/b.safetensors"}, "what had arrived was kept"


async def test_another_content_under_the_same_name_is_never_mixed_in(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/a.safetensors": WEIGHTS, "o/m/b.safetensors": GGUF}
    hub.faults = [cut("/cdn/o/m/b", GGUF, 1000)]
    with pytest.raises(FetchFailed):
        await get(fetcher, "hf://o/m", attempts=1)
    hub.faults, hub.files = [], {"o/m/a.safetensors": WEIGHTS + b"2", "o/m/b.safetensors": GGUF[::-1]}

    assert tree(await get(fetcher, "hf://o/m")) == {"a.safetensors": WEIGHTS + b"2", "b.safetensors": GGUF[::-1]}


async def test_a_spoiled_part_is_fetched_again(hub: Hub, fetcher: Any, tmp_path: Path) -> None:
    hub.files = {"o/m/a.safetensors": WEIGHTS}
    hub.faults = [cut("/cdn/", WEIGHTS, 5000)]
    with pytest.raises(FetchFailed):
        await get(fetcher, "hf://o/m", attempts=1)
    spoil(tmp_path / "cache")
    hub.faults = []

    assert tree(await get(fetcher, "hf://o/m"))["a.safetensors"] == WEIGHTS


async def test_a_disk_without_room_is_told_before_it_is_full(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/a.safetensors": WEIGHTS}
    with pytest.raises(FetchFailed) as caught:
        await get(fetcher, "hf://o/m", floor=1 << 60)

    assert caught.value.reason == "DiskFull"
    assert not caught.value.final
    assert hub.sent == {}


async def test_a_disk_that_fills_up_meanwhile(hub: Hub, fetcher: Any) -> None:
    hub.files = {"o/m/a.safetensors": WEIGHTS}
    steps = iter([None, OSError(errno.ENOSPC, "No space left on device")])

    def step() -> None:
        problem = next(steps, None)
        if problem:
            raise problem

    one = fetcher()
    full = dataclasses.replace(one, cache=Cache(one.cache.root, step))
    with pytest.raises(FetchFailed) as caught:
        await full.fetch(parse_source("hf://o/m", "vllm"), "folder")
    assert caught.value.reason == "DiskFull"

    assert tree(await get(fetcher, "hf://o/m"))["a.safetensors"] == WEIGHTS


async def test_a_manifest_that_is_not_what_its_digest_says(hub: Hub, fetcher: Any) -> None:
    digest = hub.artifact("m/q:1", [(GGUF, TAR, {"org.opencontainers.image.title": "q.gguf"})])
    hub.manifests[f"m/q:{digest}"] = hub.manifests["m/q:1"] + b" "
    with pytest.raises(FetchFailed) as caught:
        await get(fetcher, f"oci://{hub.host}/m/q@{digest}")

    assert caught.value.reason == "DigestMismatch"


@pytest.mark.parametrize("name", ["../evil", "/etc/passwd", "a/../../b"])
async def test_names_that_leave_their_folder_are_refused(hub: Hub, fetcher: Any, name: str) -> None:
    hub.artifact("m/q:1", [(GGUF, TAR, {"org.opencontainers.image.title": name})])
    with pytest.raises(FetchFailed) as caught:
        await get(fetcher, f"oci://{hub.host}/m/q:1")

    assert caught.value.reason == "BadArtifact"


async def test_archives_cannot_write_outside_either(hub: Hub, fetcher: Any, tmp_path: Path) -> None:
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as out:
        info = tarfile.TarInfo("../../../escaped")
        info.size = 1
        out.addfile(info, io.BytesIO(b"x"))
    hub.artifact("m/q:1", [(packed.getvalue(), TAR, {})])
    with pytest.raises(FetchFailed) as caught:
        await get(fetcher, f"oci://{hub.host}/m/q:1")

    assert caught.value.reason == "BadArtifact"
    assert not found(tmp_path, "escaped")

"""One model into the cache: once per node, however many pods want it at the same time."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from flexinfer.adapters.weights.disk import Cache
from flexinfer.adapters.weights.sources import Addresses, Plan, plan_of
from flexinfer.adapters.weights.transfer import transfer
from flexinfer.adapters.weights.web import Web
from flexinfer.core.lifecycle.fetching.entries import MODEL_LINK, Entry, Form, entry_of
from flexinfer.core.lifecycle.fetching.failures import FetchFailed
from flexinfer.core.lifecycle.gguf import MAGIC, BadGguf, parts_of_model, read_facts
from flexinfer.core.lifecycle.sources import Source
from flexinfer.ports import Clock

log = logging.getLogger(__name__)

LOOK_AGAIN_SECONDS = 0.5
HEAD_BYTES = 64 << 20  # the largest vocabularies with their merges take a quarter of it


@dataclass(frozen=True, slots=True)
class Fetcher:
    """``floor``: bytes of the file system that stay free; ``pause`` waits for another process."""

    cache: Cache
    web: Web
    at: Addresses
    clock: Clock
    floor: int = 0
    pause: Callable[[float], Awaitable[None]] = asyncio.sleep

    async def fetch(self, source: Source, form: Form) -> Entry:
        """The entry, whole, on this node. Raises FetchFailed."""
        entry = entry_of(source, form)
        self.cache.prepare(entry.name)
        said = False
        while True:
            with self.cache.locked(entry.name) as mine:
                if mine:
                    if not self.cache.has(entry.name):
                        await self._get(source, form, entry)
                    self.cache.used(entry.name, self.clock.now())
                    return entry
            if not said:
                log.info("another process on this node fetches %s", source.text)
                said = True
            await self.pause(LOOK_AGAIN_SECONDS)

    async def _get(self, source: Source, form: Form, entry: Entry) -> None:
        name = entry.name
        self.cache.prepare(name)
        plan = await plan_of(self.web, source, form, self.at)
        total, missing = sum(file.size for file in plan.files), self.cache.missing(name, plan.files)
        self.cache.room(missing, self.floor)
        log.info("%s at %s: %d files, %.2f GB, %.2f GB to come", source.text, plan.revision[:20], len(plan.files),
                 total / 1e9, missing / 1e9)  # fmt: skip
        for file in plan.files:
            await transfer(self.web, self.cache, name, file)
        await asyncio.to_thread(self._finish, name, source, form, plan)

    def _finish(self, name: str, source: Source, form: Form, plan: Plan) -> None:
        self.cache.assemble(name, plan.files)
        for path, data in plan.extra.items():
            self.cache.write(name, path, data)
        if form == "gguf":
            self._name_the_model(name, source)
        elif source.path and not self.cache.there(name, source.path):
            raise FetchFailed("SourceNotFound", f"there is no {source.path} in the source")
        about = {"source": source.text, "form": form, "revision": plan.revision, "fetched": self.clock.now()}
        self.cache.publish(name, about | self._facts(name, source.path))

    def _facts(self, name: str, path: str) -> dict[str, Any]:
        """What GGUF headers say of the model, for the manager; nothing where it has none that can be read."""
        with self.cache.heads(name, HEAD_BYTES) as files:
            chosen = parts_of_model({file: size for file, (head, size) in files.items() if head[:4] == MAGIC}, path)
            try:
                return {"gguf": msgspec.to_builtins(read_facts([files[file] for file in chosen]))} if chosen else {}
            except BadGguf as err:
                log.info("the memory of %s stays estimated: %s", name, err)
                return {}

    def _name_the_model(self, name: str, source: Source) -> None:
        """One file under the name the engine is given."""
        models = [path for path in self.cache.files(name) if path.lower().endswith(".gguf")]
        wanted = source.path or MODEL_LINK
        if wanted in models:
            return
        if source.path or not models:
            raise FetchFailed("SourceNotFound", f"there is no {source.path or 'GGUF file'} in the source")
        if len(models) > 1:
            raise FetchFailed("AmbiguousModel", f"{len(models)} GGUF files are in the source, first {models[0]}")
        self.cache.link(name, MODEL_LINK, models[0])

"""``flexinfer-fetch``: an init step that ends when the model is on this node, whole, or says why not.

The reason goes to the termination log, where the manager finds it, and to stderr with what to do about it. Exit
codes: 0 there, 1 not there, 2 wrong settings, 143 stopped; what has arrived stays for the next try.
"""

import asyncio
import logging
from pathlib import Path

from flexinfer.adapters.weights.disk import Cache
from flexinfer.adapters.weights.fetcher import Fetcher
from flexinfer.adapters.weights.present import check_present
from flexinfer.adapters.weights.secrets import read_secret
from flexinfer.adapters.weights.sources import Addresses
from flexinfer.adapters.weights.web import Patience, Web
from flexinfer.config.fetch import FetchSettings
from flexinfer.core.lifecycle.fetching.failures import FetchFailed, encode
from flexinfer.core.lifecycle.fetching.registry import image_reference
from flexinfer.core.lifecycle.sources import BadSource, Source, parse_source
from flexinfer.runtime.clock import SystemClock
from flexinfer.runtime.process import fail, stop_signals
from flexinfer.runtime.tasks import Supervisor

log = logging.getLogger(__name__)

EXIT_FAILED, EXIT_SETTINGS, EXIT_STOPPED = 1, 2, 143


async def run(settings: FetchSettings) -> int:
    """One model; the exit code."""
    try:
        source = parse_source(settings.source, "hf")
    except BadSource as err:
        return fail(f"flexinfer-fetch: {err}", EXIT_SETTINGS)
    stop, tasks = stop_signals(), Supervisor("fetch")
    work = tasks.once("fetch", _fetch(settings, source))
    stopping = tasks.once("stop", stop.wait())
    try:
        await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not work.done():
            log.warning("stopped: what has arrived stays for the next try")
            return EXIT_STOPPED
        failure = work.result()
    finally:
        await tasks.close()
    if failure is None:
        return 0
    _note(settings.termination_log, failure)
    return fail(f"flexinfer-fetch: {failure.reason}: {failure.message}; {failure.remedy}", EXIT_FAILED)


async def _fetch(settings: FetchSettings, source: Source) -> FetchFailed | None:
    try:
        if source.scheme in {"file", "pvc"}:
            check_present(Path(source.location))
            return None
        await _copy(settings, source)
    except FetchFailed as err:
        return err
    return None


async def _copy(settings: FetchSettings, source: Source) -> None:
    host = image_reference(source.location).host if source.scheme == "oci" else ""
    credentials = read_secret(settings.secret_dir, settings.secret_name, host)
    clock = SystemClock()
    web = Web(credentials, settings.hub, Patience(settings.attempts), clock)
    at = Addresses(settings.hub.rstrip("/"), settings.ollama_registry.rstrip("/"))
    try:
        fetcher = Fetcher(Cache(settings.model_cache), web, at, clock, int(settings.floor_gb * 1e9))
        entry = await fetcher.fetch(source, settings.form)
    finally:
        await web.aclose()
    log.info("%s is at %s", source.text, settings.model_cache / entry.path)


def _note(path: Path, failure: FetchFailed) -> None:
    try:
        path.write_text(encode(failure))
    except OSError as err:
        log.info("no termination message: %s", err)

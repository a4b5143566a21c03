"""Credentials from a mounted Secret. What it may hold: ``token``; ``username`` and ``password``; the file of a
``kubernetes.io/dockerconfigjson`` Secret."""

import base64
import binascii
import json
from pathlib import Path

from flexinfer.adapters.weights.web import Credentials
from flexinfer.core.lifecycle.fetching.failures import FetchFailed

DOCKER_CONFIG = ".dockerconfigjson"


def read_secret(folder: Path | None, name: str, host: str) -> Credentials:
    """Credentials for ``host``, the registry of the source. A Secret that is not there is an empty folder, because
    the volume is optional: only so can its absence be told. Raises FetchFailed."""
    if folder is None:
        return Credentials()
    token, user, password = (_text(folder / key) for key in ("token", "username", "password"))
    logins = {host: (user, password)} if user else {}
    if (folder / DOCKER_CONFIG).exists():
        logins |= _docker(_text(folder / DOCKER_CONFIG), name)
    found = Credentials(token, logins)
    if found.empty:
        keys = f"token, username and password, or {DOCKER_CONFIG}"
        raise FetchFailed("SecretMissing", f"Secret {name or folder.name} is not there, or has none of {keys}")
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as err:
        raise FetchFailed("SecretMissing", f"{path.name} of the Secret cannot be read: {type(err).__name__}") from err


def _docker(text: str, name: str) -> dict[str, tuple[str, str]]:
    try:
        entries = json.loads(text)["auths"].items()
        return {_host(address): _login(entry) for address, entry in entries}
    except (ValueError, KeyError, TypeError, AttributeError, binascii.Error) as err:
        raise FetchFailed("SecretMissing", f"{DOCKER_CONFIG} of Secret {name} is malformed") from err


def _login(entry: dict[str, str]) -> tuple[str, str]:
    if entry.get("username"):
        return entry["username"], entry.get("password", "")
    user, _, password = base64.b64decode(entry["auth"], validate=True).decode().partition(":")
    return user, password


def _host(address: str) -> str:
    host = address.removeprefix("https://").removeprefix("http://").partition("/")[0]
    return "registry-1.docker.io" if host in {"index.docker.io", "docker.io"} else host

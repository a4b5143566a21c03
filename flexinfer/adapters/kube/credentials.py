"""Where the API server is and how we prove who we are: in-cluster files, a kubeconfig, or its exec plugin.

Static kubeconfigs and ServiceAccount files are read here; users with an ``exec`` or ``auth-provider`` entry go
through kubernetes_asyncio, which is imported only then: it costs 38 MB and half a second in every process.
"""

import asyncio
import base64
import binascii
import os
import ssl
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml

SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
REREAD_SECONDS = 60.0  # projected tokens are rewritten long before they end; the API libraries re-read each minute


class KubeconfigError(OSError):
    """The configuration cannot be used; the text is one sentence that names the file and what to change."""


class Authorization(Protocol):
    """Source of the ``Authorization`` header."""

    async def header(self) -> str | None:
        """The current value, None for anonymous or client certificates. Raises KubeconfigError."""
        ...

    def rejected(self) -> None:
        """The server answered 401: fetch a new value next time."""
        ...


class StaticToken:
    """A value that never changes."""

    def __init__(self, value: str | None = None) -> None:
        self._value = value

    async def header(self) -> str | None:
        return self._value

    def rejected(self) -> None:
        return


class TokenFile:
    """A bearer token in a file that somebody else renews."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value: str | None = None
        self._read_at = 0.0

    async def header(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if self._value is None or now - self._read_at >= REREAD_SECONDS:
            self._value = f"Bearer {_read(self._path).decode().strip()}"
            self._read_at = now
        return self._value

    def rejected(self) -> None:
        self._value = None


class PluginToken:
    """Tokens from kubernetes_asyncio's loader: exec plugins, OIDC and GCP auth providers."""

    def __init__(self, loader: Any, configuration: Any) -> None:
        self._loader = loader
        self._configuration = configuration
        self._checked_at = asyncio.get_running_loop().time()
        self._lock = asyncio.Lock()
        self._stale = False

    async def header(self) -> str | None:
        now = asyncio.get_running_loop().time()
        async with self._lock:
            if self._stale or (self._expires() and now - self._checked_at >= REREAD_SECONDS):
                await _load_plugin(self._loader, self._configuration)
                self._checked_at, self._stale = now, False
        value = self._configuration.api_key.get("BearerToken")
        return str(value) if value else None

    def rejected(self) -> None:
        # The loader keeps a token it believes valid; without the expiry it asks the plugin again.
        if hasattr(self._loader, "exec_plugin_expiry"):
            del self._loader.exec_plugin_expiry
        self._stale = True

    def _expires(self) -> bool:
        # A plugin that names no expiry would be run at each look; its token is used until it is rejected.
        return self._loader.provider is not None or hasattr(self._loader, "exec_plugin_expiry")


class Access:
    """Server, transport security and identity. ``tls`` is None for plain HTTP."""

    def __init__(
        self,
        server: str,
        authorization: Authorization | None = None,
        *,
        tls: ssl.SSLContext | None = None,
        tls_server_name: str | None = None,
        proxy: str | None = None,
    ) -> None:
        self.server = server.rstrip("/")
        self.authorization = authorization or StaticToken()
        self.tls = tls
        self.tls_server_name = tls_server_name
        self.proxy = proxy


async def find_access(kubeconfig: Path | None, environ: Mapping[str, str] = os.environ) -> Access:
    """Access from the file; without one from the pod's ServiceAccount, else from ``~/.kube/config``.

    Raises KubeconfigError.
    """
    if kubeconfig is not None:
        return await from_kubeconfig(kubeconfig)
    host = environ.get("KUBERNETES_SERVICE_HOST")
    if host:
        return from_service_account(host, environ.get("KUBERNETES_SERVICE_PORT", "443"), SERVICE_ACCOUNT)
    default = Path.home() / ".kube" / "config"
    if default.exists():
        return await from_kubeconfig(default)
    raise KubeconfigError("no Kubernetes API is configured: pass --kubeconfig FILE, set KUBECONFIG, or run in a pod")


def from_service_account(host: str, port: str, folder: Path) -> Access:
    """The files every pod gets. Raises KubeconfigError."""
    address = f"[{host}]" if ":" in host else host
    _read(folder / "token")
    return Access(f"https://{address}:{port}", TokenFile(folder / "token"), tls=_tls(_read(folder / "ca.crt").decode()))


async def from_kubeconfig(path: Path) -> Access:
    """The current context of a kubeconfig file. Raises KubeconfigError."""
    config = _parse(path)
    context = _named(config, "contexts", config.get("current-context"), path).get("context") or {}
    cluster = _named(config, "clusters", context.get("cluster"), path).get("cluster") or {}
    user = (_named(config, "users", context["user"], path).get("user") or {}) if context.get("user") else {}
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise KubeconfigError(f"{path}: cluster {context.get('cluster')!r} has no http(s) server address")
    certificate, key = _material(user, "client-certificate", path), _material(user, "client-key", path)
    authorization: Authorization
    if "exec" in user or "auth-provider" in user:
        authorization, pair = await _plugin(config, path)
        certificate, key = pair or (certificate, key)
    else:
        authorization = _static_authorization(user, path)
    tls = None
    if server.startswith("https://"):
        authority = _material(cluster, "certificate-authority", path)
        tls = _tls(
            authority.decode() if authority else None,
            verify=not cluster.get("insecure-skip-tls-verify"),
            certificate=certificate,
            key=key,
        )
    return Access(
        server,
        authorization,
        tls=tls,
        tls_server_name=cluster.get("tls-server-name"),
        proxy=cluster.get("proxy-url"),
    )


def _parse(path: Path) -> dict[str, Any]:
    try:
        config = yaml.safe_load(_read(path))
    except yaml.YAMLError as err:
        raise KubeconfigError(f"{path} is not YAML: {err}") from err
    if not isinstance(config, dict):
        raise KubeconfigError(f"{path} is not a kubeconfig: it should be a mapping with contexts, clusters and users")
    return config


def _named(config: dict[str, Any], section: str, name: Any, path: Path) -> dict[str, Any]:
    for entry in config.get(section) or ():
        if isinstance(entry, dict) and entry.get("name") == name:
            return entry
    raise KubeconfigError(f"{path}: {section} has no entry named {name!r}")


def _material(owner: dict[str, Any], field: str, path: Path) -> bytes | None:
    """PEM bytes of ``field-data`` (base64) or of the file ``field`` names, relative to the kubeconfig."""
    data = owner.get(f"{field}-data")
    if data:
        try:
            return base64.b64decode(str(data), validate=True)
        except binascii.Error as err:
            raise KubeconfigError(f"{path}: {field}-data is not base64") from err
    name = owner.get(field)
    return _read(path.parent / str(name)) if name else None


def _static_authorization(user: dict[str, Any], path: Path) -> Authorization:
    if user.get("token"):
        return StaticToken(f"Bearer {user['token']}")
    if user.get("tokenFile"):
        return TokenFile(path.parent / str(user["tokenFile"]))
    if user.get("username") and user.get("password"):
        pair = f"{user['username']}:{user['password']}".encode()
        return StaticToken("Basic " + base64.b64encode(pair).decode())
    return StaticToken()


async def _plugin(config: dict[str, Any], path: Path) -> tuple[Authorization, tuple[bytes, bytes] | None]:
    from kubernetes_asyncio.client import Configuration  # noqa: PLC0415 - heavy, see the module's docstring
    from kubernetes_asyncio.config.kube_config import KubeConfigLoader  # noqa: PLC0415 - as above

    configuration = Configuration()
    loader = KubeConfigLoader(config_dict=config, config_base_path=str(path.parent))
    await _load_plugin(loader, configuration)
    pair = None
    if configuration.cert_file and configuration.key_file:
        pair = (_read(Path(configuration.cert_file)), _read(Path(configuration.key_file)))
    return PluginToken(loader, configuration), pair


async def _load_plugin(loader: Any, configuration: Any) -> None:
    try:
        await loader.load_and_set(configuration)
    except (OSError, ValueError, RuntimeError) as err:
        raise KubeconfigError(f"the credential plugin of the kubeconfig failed: {err}") from err
    except Exception as err:
        if type(err).__name__ != "ConfigException":
            raise
        raise KubeconfigError(f"the credential plugin of the kubeconfig failed: {err}") from err


def _tls(
    authority: str | None, *, verify: bool = True, certificate: bytes | None = None, key: bytes | None = None
) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cadata=authority)
        # OpenSSL's strict mode (on by default from Python 3.13) refuses CAs without a key usage, as kubeadm once made.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if certificate and key:
            _load_pair(context, certificate, key)
    except ssl.SSLError as err:
        raise KubeconfigError(f"the certificates of the Kubernetes configuration cannot be used: {err}") from err
    return context


def _load_pair(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """OpenSSL's Python binding takes files only; they exist for this call, readable by us alone."""
    with tempfile.TemporaryDirectory(prefix="flexinfer-") as folder:
        for name, content in (("crt", certificate), ("key", key)):
            (Path(folder) / name).write_bytes(content)
        context.load_cert_chain(f"{folder}/crt", f"{folder}/key")


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as err:
        raise KubeconfigError(f"cannot read {path}: {err.strerror}") from err

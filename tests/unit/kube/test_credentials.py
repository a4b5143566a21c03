"""Kubeconfigs and ServiceAccount files become access, and what is wrong with them is one sentence."""

import base64
import json
import sys

import pytest
import yaml

from flexinfer.adapters.kube import credentials
from flexinfer.adapters.kube.credentials import (
    KubeconfigError,
    TokenFile,
    find_access,
    from_kubeconfig,
    from_service_account,
)

CA = """-----BEGIN CERTIFICATE-----
MIIBdjCCAR2gAwIBAgIBADAKBggqhkjOPQQDAjAjMSEwHwYDVQQDDBhrM3Mtc2Vy
-----END CERTIFICATE-----
"""


PLUGIN = """
import json, pathlib, sys
file = pathlib.Path(sys.argv[1])
count = int(file.read_text()) + 1 if file.exists() else 1
file.write_text(str(count))
head = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential"}
print(json.dumps({**head, "status": {"token": f"t{count}"}}))
"""


def config(user=None, **cluster) -> dict:
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", **({"user": "u"} if user is not None else {})}}],
        "clusters": [{"name": "k", "cluster": {"server": "http://127.0.0.1:1/", **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }


@pytest.fixture
def write(tmp_path):
    def file(content: object) -> object:
        path = tmp_path / "kubeconfig"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
        return path

    return file


async def test_a_token(write):
    access = await from_kubeconfig(write(config({"token": "t"})))

    assert access.server == "http://127.0.0.1:1"
    assert access.tls is None
    assert await access.authorization.header() == "Bearer t"


async def test_a_password(write):
    access = await from_kubeconfig(write(config({"username": "a", "password": "b"})))

    assert await access.authorization.header() == "Basic " + base64.b64encode(b"a:b").decode()


async def test_nobody(write):
    for user in (None, {}):
        access = await from_kubeconfig(write(config(user)))
        assert await access.authorization.header() is None


async def test_a_token_file_is_relative_to_the_kubeconfig(write, tmp_path):
    (tmp_path / "tok").write_text("t1\n")
    access = await from_kubeconfig(write(config({"tokenFile": "tok"})))

    assert await access.authorization.header() == "Bearer t1"


async def test_a_rotated_token_is_read_again(tmp_path, monkeypatch):
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(path)
    assert await token.header() == "Bearer one"

    path.write_text("two")
    assert await token.header() == "Bearer one"
    token.rejected()
    assert await token.header() == "Bearer two"

    path.write_text("three")
    monkeypatch.setattr(credentials, "REREAD_SECONDS", 0.0)
    assert await token.header() == "Bearer three"


async def test_tls_settings(write):
    secure = config({"token": "t"}, **{"insecure-skip-tls-verify": True, "tls-server-name": "api.local"})
    secure["clusters"][0]["cluster"]["server"] = "https://[::1]:6443"
    access = await from_kubeconfig(write(secure))

    assert access.tls is not None
    assert access.tls.verify_mode == 0
    assert access.tls_server_name == "api.local"


async def test_an_exec_plugin_gives_the_token_and_is_asked_again_after_a_rejection(write, tmp_path):
    counter = tmp_path / "count"
    plugin = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", PLUGIN, str(counter)],
            "interactiveMode": "Never",
        }
    }
    access = await from_kubeconfig(write(config(plugin)))

    assert await access.authorization.header() == "Bearer t1"
    assert await access.authorization.header() == "Bearer t1"
    access.authorization.rejected()
    assert await access.authorization.header() == "Bearer t2"


async def test_a_failing_plugin_is_told(write):
    plugin = {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": ["-c", "import sys; sys.exit('not logged in')"],
        }
    }
    with pytest.raises(KubeconfigError, match="not logged in"):
        await from_kubeconfig(write(config(plugin)))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("[]", "not a kubeconfig"),
        ("a: [", "not YAML"),
        (config() | {"current-context": "other"}, "contexts has no entry named 'other'"),
        (config() | {"clusters": []}, "clusters has no entry named 'k'"),
        (config({}) | {"users": None}, "users has no entry named 'u'"),
        (config(server="ftp://x"), "no http"),
        (config({"tokenFile": "nowhere"}), None),
        (config(**{"server": "https://x", "certificate-authority-data": "%%"}), "not base64"),
        (config(**{"server": "https://x", "certificate-authority": "nowhere.crt"}), "nowhere.crt"),
        (
            config(**{"server": "https://x", "certificate-authority-data": base64.b64encode(CA.encode()).decode()}),
            "cert",
        ),
    ],
)
async def test_each_problem_is_one_sentence(write, content, says):
    async def use() -> None:
        await (await from_kubeconfig(write(content))).authorization.header()

    with pytest.raises(KubeconfigError) as refused:
        await use()

    assert (says or "nowhere") in str(refused.value)
    assert "\n" not in str(refused.value) or "YAML" in str(refused.value)


async def test_a_missing_file(tmp_path):
    with pytest.raises(KubeconfigError, match="cannot read"):
        await find_access(tmp_path / "none")


async def test_no_configuration_at_all_says_what_to_do(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))

    with pytest.raises(KubeconfigError, match="--kubeconfig"):
        await find_access(None, {})


async def test_the_home_kubeconfig_is_the_last_resort(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".kube").mkdir()
    (tmp_path / ".kube" / "config").write_text(json.dumps(config({"token": "t"})))

    assert (await find_access(None, {})).server == "http://127.0.0.1:1"


def test_a_pod_uses_its_service_account(tmp_path):
    with pytest.raises(KubeconfigError, match="token"):
        from_service_account("10.0.0.1", "443", tmp_path)

    (tmp_path / "token").write_text("t")
    (tmp_path / "ca.crt").write_text(CA)
    with pytest.raises(KubeconfigError, match="certificates"):
        from_service_account("10.0.0.1", "443", tmp_path)

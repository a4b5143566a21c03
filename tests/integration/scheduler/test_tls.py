"""The extender over HTTPS with client certificates, its metrics beside it in the clear."""

import ssl

import aiohttp
import pytest
import trustme


async def test_only_clients_with_a_certificate_of_our_ca_are_answered(cluster, tmp_path):
    ca, stranger = trustme.CA(), trustme.CA()
    server = ca.issue_cert("127.0.0.1")
    client = ca.issue_cert("kube-scheduler@example.org")
    paths = {name: tmp_path / name for name in ("crt", "key", "ca", "client", "other")}
    server.cert_chain_pems[0].write_to_path(paths["crt"])
    server.private_key_pem.write_to_path(paths["key"])
    ca.cert_pem.write_to_path(paths["ca"])
    client.private_key_and_cert_chain_pem.write_to_path(paths["client"])
    stranger.issue_cert("x@example.org").private_key_and_cert_chain_pem.write_to_path(paths["other"])
    plain = cluster.free_port()

    url, _ = await cluster.extender(
        "--tls-cert", str(paths["crt"]), "--tls-key", str(paths["key"]), "--tls-client-ca", str(paths["ca"]),
        "--metrics-port", str(plain), ready=False,
    )  # fmt: skip
    await cluster.until(lambda: cluster.status(f"http://127.0.0.1:{plain}", "/readyz", 200), "ready in the clear")

    async def ask(certificate):
        context = ssl.create_default_context(cafile=str(paths["ca"]))
        if certificate:
            context.load_cert_chain(str(certificate))
        connector = aiohttp.TCPConnector(ssl=context)
        async with aiohttp.ClientSession(connector=connector) as session:
            body = {"Pod": {"metadata": {"name": "p"}}, "NodeNames": []}
            async with session.post(url.replace("http:", "https:") + "/filter", json=body) as response:
                return await response.json()

    assert (await ask(paths["client"]))["NodeNames"] == []
    for refused in (None, paths["other"]):
        with pytest.raises(aiohttp.ClientError):
            await ask(refused)

"""The proxies' HTTP: a listener and an engine client on bare asyncio protocols, and what runs between them.

A web framework and an HTTP client library cost ten times the relay itself (docs/proxies.md has the numbers), and
neither keeps trailers, chunk boundaries and timeouts of request heads. Parsing stays with llhttp (httptools).
"""

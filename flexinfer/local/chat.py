"""The first chat answer of the demo, asked through the proxy like any client would."""

import asyncio
import json
import urllib.error
import urllib.request

from flexinfer.local.errors import UserError

QUESTION = "In one short sentence: what is a GPU?"


def request_body(model: str, question: str = QUESTION, max_tokens: int = 48) -> dict[str, object]:
    """An OpenAI chat request."""
    return {"model": model, "messages": [{"role": "user", "content": question}], "max_tokens": max_tokens}


def curl(proxy_url: str, model: str, *, stream: bool = False) -> str:
    """The same request as a command to copy."""
    body = request_body(model, "Hello!") | ({"stream": True} if stream else {})
    return (
        f"curl {'-N ' if stream else ''}{proxy_url}/v1/chat/completions "
        f"-H 'Content-Type: application/json' -d '{json.dumps(body)}'"
    )


def _ask(proxy_url: str, model: str) -> tuple[str, str]:
    request = urllib.request.Request(  # noqa: S310 - our own proxy on loopback
        f"{proxy_url}/v1/chat/completions",
        json.dumps(request_body(model)).encode(),
        {"Content-Type": "application/json"},
    )
    try:
        with urllib.request.urlopen(request, timeout=120) as response:  # noqa: S310 - as above
            answer = json.load(response)
            return answer["choices"][0]["message"]["content"].strip(), response.headers.get("X-FlexInfer-Endpoint", "")
    except urllib.error.HTTPError as err:
        raise UserError(f"the proxy answered {err.code}: {err.read(400).decode(errors='replace')}") from err
    except (OSError, ValueError, KeyError, IndexError) as err:
        raise UserError(f"no chat answer from {proxy_url}: {err}") from err


async def ask(proxy_url: str, model: str) -> tuple[str, str]:
    """(answer, endpoint that gave it). Raises UserError."""
    return await asyncio.to_thread(_ask, proxy_url, model)

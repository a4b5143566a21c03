"""People who chat with the example model while the release below them changes."""

import http.client
import json
import threading
import time
from dataclasses import dataclass, field
from typing import Self


@dataclass
class Chats:
    """Requests through the proxy's Service, two at a time, until told to stop. None is tried again."""

    address: str
    answered: int = 0
    failed: list[str] = field(default_factory=list)
    _stop: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def __enter__(self) -> Self:
        self._threads = [threading.Thread(target=self._ask_on) for _ in range(2)]
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    def _ask_on(self) -> None:
        while not self._stop.is_set():
            try:
                status, body = chat(self.address)
            except (OSError, http.client.HTTPException) as err:
                self.failed.append(f"{time.strftime('%T')} {err!r}")
                continue
            if status == 200:
                self.answered += 1
            else:
                self.failed.append(f"{status} {body}")


def chat(address: str) -> tuple[int, str]:
    """(status, content or the error)"""
    connection = http.client.HTTPConnection(address, 8080, timeout=180)
    ask = {"model": "default/smollm2", "messages": [{"role": "user", "content": "Say hi."}], "max_tokens": 4}
    try:
        connection.request("POST", "/v1/chat/completions", json.dumps(ask), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        body = answer.read().decode()
    finally:
        connection.close()
    return answer.status, str(json.loads(body)["choices"][0]["message"]["content"]) if answer.status == 200 else body

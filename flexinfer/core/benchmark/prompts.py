"""Prompts of a wanted token length that no cache has seen.

A prompt is a row of common words, each one token in the usual vocabularies, so its length in tokens is its number
of words plus a constant of the server: a chat template, a BOS. One or two answers tell that constant. The row
differs from its first word on, so prefix caches find nothing even where they cannot be switched off.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

_WORDS = (  # noqa: SIM905 - two hundred quotes would hide the words
    "time year people way day man thing woman life child world school state family student group country problem "
    "hand part place case week company system program question work government number night point home water room "
    "mother area money story fact month lot right study book eye job word business issue side kind head house "
    "service friend father power hour game line end member law car city community name president team minute idea "
    "body information back parent face others level office door health person art war history party result change "
    "morning reason research girl guy moment air teacher force education foot boy age policy process music market "
    "sense nation plan college interest death experience effect use class control care field development role "
    "effort rate heart drug show leader light voice wife police mind price report decision son view relationship "
    "town road arm difference value building action season society tax director position player record paper "
    "space ground form event official matter center couple site project activity star table need court oil "
    "situation cost industry figure street image phone data picture practice piece land product doctor wall "
    "patient worker news test movie north love support technology step baby computer type attention film tree "
    "source organization hair look window culture chance brother energy period course summer plant opportunity"
).split()

_MASK = (1 << 64) - 1


def _numbers(seed: int) -> Iterator[int]:
    """SplitMix64: the same sequence for a seed on every machine and release."""
    state = seed & _MASK
    while True:
        state = (state + 0x9E3779B97F4A7C15) & _MASK
        mixed = ((state ^ (state >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
        mixed = ((mixed ^ (mixed >> 27)) * 0x94D049BB133111EB) & _MASK
        yield mixed ^ (mixed >> 31)


def prompt(seed: int, number: int, words: int) -> str:
    """Prompt ``number`` of a run: ``words`` words, each after a space, the first one too."""
    numbers = _numbers(seed * 0x100000001B3 + number)
    return "".join(f" {_WORDS[next(numbers) % len(_WORDS)]}" for _ in range(words))


def corrected(wanted: int, seen: Sequence[tuple[int, int]]) -> int:
    """How many words to send for ``wanted`` tokens, after prompts of (words, tokens told) were seen, oldest first.

    Exact after one answer where a word is one token; the slope between two answers finds the others.
    """
    if not seen:
        return max(1, wanted)
    words, told = seen[-1]
    slope = max(1.0, told / words) if told >= 2 * words else 1.0
    if len(seen) > 1 and seen[-2][0] != words and told != seen[-2][1]:
        slope = abs((told - seen[-2][1]) / (words - seen[-2][0]))
    return max(1, words + round((wanted - told) / slope))


_SAME_LENGTH: Mapping[str, Mapping[str, Any]] = {
    "llamacpp": {"ignore_eos": True, "cache_prompt": False},
    "vllm": {"ignore_eos": True},
    "sglang": {"ignore_eos": True},
    "tensorrt-llm": {"ignore_eos": True},
    "ollama": {},
    "tgi": {},
}


def request_options(backend: str, seed: int) -> dict[str, Any]:
    """Body fields that make answers equally long and keep caches out, as far as the engine knows them.

    An engine we do not know is asked with llama.cpp's and vLLM's fields; the caller drops them if it refuses.
    """
    known = _SAME_LENGTH.get(backend, _SAME_LENGTH["llamacpp"])
    return {"temperature": 0, "seed": seed & 0x7FFFFFFF, **known}


def plain_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """The same without fields OpenAI's API does not define, for servers that refuse unknown ones."""
    return {name: value for name, value in options.items() if name in {"temperature", "seed"}}

"""Prompts are seeded, unlike each other from the first word, and of the length asked for."""

from hypothesis import given
from hypothesis import strategies as st

from flexinfer.core.benchmark.prompts import corrected, plain_options, prompt, request_options


def test_the_same_seed_gives_the_same_prompt():
    assert prompt(7, 1, 5) == prompt(7, 1, 5)
    assert prompt(7, 1, 3) == " number light thing"


def test_prompts_of_a_run_differ_early():
    firsts = {" ".join(prompt(7, number, 64).split()[:2]) for number in range(200)}
    assert len(firsts) > 190


def test_each_word_follows_a_space():
    text = prompt(1, 1, 64)
    assert len(text.split()) == 64
    assert text.startswith(" ")
    assert "  " not in text


@given(st.integers(1, 4000), st.integers(0, 300))
def test_a_constant_excess_is_known_after_two_answers(wanted: int, excess: int):
    seen: list[tuple[int, int]] = []
    for _ in range(3):
        words = corrected(wanted, seen)
        seen.append((words, words + excess))
    assert seen[-1][1] == wanted or seen[-1][0] == 1


@given(st.integers(10, 4000), st.floats(1.0, 4.0), st.integers(0, 30))
def test_words_of_several_tokens_are_approached(wanted: int, per_word: float, excess: int):
    seen: list[tuple[int, int]] = []
    for _ in range(4):
        words = corrected(wanted, seen)
        seen.append((words, round(words * per_word) + excess))
    assert min(abs(told - wanted) for _, told in seen) <= per_word + 1 or words == 1


def test_it_never_asks_for_no_words():
    assert corrected(4, [(4, 400)]) == 1


def test_engines_get_the_fields_they_know():
    assert request_options("llamacpp", 5) == {"temperature": 0, "seed": 5, "ignore_eos": True, "cache_prompt": False}
    assert request_options("ollama", 5) == {"temperature": 0, "seed": 5}
    assert "cache_prompt" not in request_options("vllm", 5)
    assert request_options("unheard-of", 5)["ignore_eos"] is True


def test_plain_options_are_those_of_the_public_api():
    assert plain_options(request_options("llamacpp", 5)) == {"temperature": 0, "seed": 5}

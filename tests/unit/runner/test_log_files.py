"""Log files stay small and tails are exact."""

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flexinfer.local.runner.addresses import Addresses
from flexinfer.local.runner.logs import LogFiles, _last_lines


def write(logs: LogFiles, *lines: bytes) -> int:
    descriptor = logs.open_next()
    for line in lines:
        os.write(descriptor, line)
    return descriptor


def test_tail_and_limit(tmp_path):
    logs = LogFiles(tmp_path)
    os.close(write(logs, b"one\ntwo\nthree\n"))

    assert logs.read() == b"one\ntwo\nthree\n"
    assert logs.read(tail=2) == b"two\nthree\n"
    assert logs.read(tail=2, limit=5) == b"two\nt"


def test_the_previous_run_is_kept_and_the_one_before_removed(tmp_path):
    logs = LogFiles(tmp_path)
    for text in (b"1", b"2", b"3"):
        os.close(write(logs, text))

    assert logs.read() == b"3"
    assert logs.read(previous=True) == b"2"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1.log", "2.log"]


def test_no_log_yet(tmp_path):
    with pytest.raises(FileNotFoundError):
        LogFiles(tmp_path).read()


def test_a_long_log_is_cut_at_a_line_and_goes_on(tmp_path):
    logs = LogFiles(tmp_path, limit=100, kept=30)
    descriptor = write(logs, *(b"line %02d\n" % number for number in range(20)))

    assert logs.trim()
    os.write(descriptor, b"after\n")
    os.close(descriptor)

    text = logs.read()
    assert text.startswith(b"[flexinfer: older lines were cut off]\nline 17\n")
    assert text.endswith(b"line 19\nafter\n")
    assert not logs.trim()


def test_last_words(tmp_path):
    logs = LogFiles(tmp_path)
    assert logs.last_words() == ""
    os.close(write(logs, *(b"%d\n" % number for number in range(200))))

    assert logs.last_words().splitlines()[0] == "120"


@given(st.lists(st.binary(max_size=5).map(lambda text: text.replace(b"\n", b"x")), max_size=8), st.integers(0, 10))
def test_tails_are_whole_lines(lines, count):
    text = b"".join(line + b"\n" for line in lines)
    kept = lines[len(lines) - min(count, len(lines)) :]

    assert _last_lines(text, count) == b"".join(line + b"\n" for line in kept)


def test_addresses_are_unique_and_not_soon_used_again():
    addresses = Addresses("x")
    first = addresses.take()
    addresses.free(first)
    others = {addresses.take() for _ in range(600)}

    assert len(others) == 600
    assert first not in others
    assert all(1 <= int(part) <= 254 for address in others for part in address.split(".")[3:])


def test_a_pod_keeps_its_address_if_it_is_free():
    addresses = Addresses("x")

    assert addresses.take("127.50.0.9") == "127.50.0.9"
    assert addresses.take("127.50.0.9") != "127.50.0.9"
    assert addresses.take("10.1.2.3").startswith("127.")
    assert addresses.take("127.0.0.1") != "127.0.0.1"

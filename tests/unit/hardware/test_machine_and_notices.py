"""The machine around the devices, and notices that it will be gone."""

import pytest

from flexinfer.core.hardware import notices
from flexinfer.core.hardware.machine import CpuTimes, Memory, parse_cpuinfo, parse_meminfo, parse_stat, utilisation
from flexinfer.core.hardware.notices import Notice

STAT = "cpu  100 0 50 800 50 0 0 0 0 0\ncpu0 1 2 3 4\n"


def test_the_first_line_of_stat_is_all_processors() -> None:
    assert parse_stat(STAT) == CpuTimes(150, 1000)
    assert parse_stat("intr 1 2 3") is None
    assert parse_stat("cpu  1 2") is None


@pytest.mark.parametrize(
    ("before", "after", "percent"),
    [(CpuTimes(100, 1000), CpuTimes(150, 1100), 50.0), (None, CpuTimes(1, 2), None),
     (CpuTimes(5, 10), CpuTimes(5, 10), None), (CpuTimes(9, 10), CpuTimes(5, 20), 0.0)],
)  # fmt: skip
def test_utilisation_needs_two_readings(before: CpuTimes | None, after: CpuTimes, percent: float | None) -> None:
    assert utilisation(before, after) == percent


def test_an_old_kernel_has_no_available_memory() -> None:
    assert parse_meminfo("MemTotal: 2048 kB\nMemFree: 1024 kB\n") == Memory(2, 1)
    assert parse_meminfo("") == Memory()


def test_a_processor_is_counted_and_named() -> None:
    text = "processor\t: 0\nmodel name\t: AMD EPYC 7B13 \nflags\t: a avx512f\n\nprocessor\t: 1\nflags\t: avx512f b\n"

    found = parse_cpuinfo(text, Memory(1000))

    assert (found.model, found.threads, found.memory_mib, found.avx512) == ("AMD EPYC 7B13", 2, 1000, True)
    assert parse_cpuinfo("", Memory()).threads is None


def test_the_drain_file_gives_its_first_line() -> None:
    assert notices.from_file(b"maintenance at nine\nmore\n") == Notice("maintenance at nine")
    assert notices.from_file(b"") == Notice("the drain file exists")
    assert notices.from_file(None) is None


def test_logind_schedules_shutdowns() -> None:
    raw = b"USEC=1700000000000000\nWARN_WALL=1\nMODE=poweroff\n"

    assert notices.from_logind(raw) == Notice("systemd-logind will poweroff at 2023-11-14T22:13:20Z")
    assert notices.from_logind(b"MODE=dry-poweroff\n") is None
    assert notices.from_logind(None) is None


def test_clouds_announce_interruptions() -> None:
    aws = notices.from_aws(b'{"action": "terminate", "time": "2026-01-01T00:00:00Z"}')
    azure = notices.from_azure(b'{"Events": [{"EventType": "Freeze"}, {"EventType": "Preempt", "NotBefore": "soon"}]}')

    assert aws == Notice("EC2 will terminate this spot instance at 2026-01-01T00:00:00Z")
    assert azure == Notice("Azure event Preempt not before soon")
    assert notices.from_gcp(b"TRUE", None)
    assert notices.from_gcp(b"FALSE", b"TERMINATE_ON_HOST_MAINTENANCE")
    assert notices.from_gcp(b"FALSE", b"NONE") is None
    assert notices.from_aws(b"<html>") is None
    assert notices.from_azure(b'{"Events": []}') is None

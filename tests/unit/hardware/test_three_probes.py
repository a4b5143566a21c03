"""Patience: failing probes keep the last good answer for three, vanished devices go at the third."""

import pytest

from flexinfer.contracts.events import Cpu
from flexinfer.core.hardware.findings import Fault, Findings, Live, Unit
from flexinfer.core.hardware.inventory import Inventory, take
from flexinfer.core.hardware.projection import labels_of
from flexinfer.core.hardware.steady import Steady


def unit(at: int, **fields: object) -> Unit:
    values: dict[str, object] = {
        "vendor": "NVIDIA", "index": at, "uuid": f"GPU-{at}", "source": "nvml", "arch": "sm_89", "memory_mib": 24564,
        "memory_type": "dedicated", "pci": f"0000:{at}7:00.0", "live": Live(util_percent=10.0),
    }  # fmt: skip
    return Unit(**(values | fields))  # type: ignore[arg-type]


GOOD = Findings("NVIDIA", (unit(0), unit(1)))
BROKEN = Findings("NVIDIA", (unit(0, fault=Fault("timeout", "timeout")),), (), Fault("timeout", "timeout", "hung"))


def inventory(found: Findings) -> Inventory:
    return take([found], Cpu())


def test_a_failing_probe_keeps_the_labels_for_three_and_says_so() -> None:
    steady = Steady()
    steady.take(GOOD)

    told = [inventory(steady.take(BROKEN)) for _ in range(4)]

    assert [len(each.counted) for each in told] == [2, 2, 2, 0]
    assert [each.health.state for each in told] == ["timeout"] * 4
    assert told[0].health.reasons == ("timeout: hung (probe 1 of 3 that failed)",)
    assert [labels_of(each, "")["gpu.count"] for each in told] == ["2", "2", "2", "0"]
    assert "gpu.vram" not in labels_of(told[3], "")


def test_kept_devices_have_no_figures() -> None:
    steady = Steady()
    steady.take(GOOD)

    assert [unit.live for unit in steady.take(BROKEN).units] == [Live(), Live()]


def test_a_good_probe_ends_the_count() -> None:
    steady = Steady()
    steady.take(GOOD)

    for _ in range(5):
        steady.take(BROKEN)
        steady.take(BROKEN)
        assert steady.take(GOOD) == GOOD
    assert len(inventory(steady.take(BROKEN)).counted) == 2


def test_the_first_probe_is_believed_whatever_it_is() -> None:
    assert Steady().take(BROKEN) == BROKEN
    assert Steady().take(Findings("AMD")) == Findings("AMD")


def test_a_vanished_device_is_withdrawn_at_the_third_probe() -> None:
    steady = Steady()
    steady.take(GOOD)

    told = [inventory(steady.take(Findings("NVIDIA", (unit(0),)))) for _ in range(4)]

    assert [len(each.counted) for each in told] == [2, 2, 1, 1]
    assert [each.health.state for each in told] == ["degraded", "degraded", "ok", "ok"]


def test_a_device_that_comes_back_was_never_gone() -> None:
    steady = Steady()
    steady.take(GOOD)
    for _ in range(4):
        steady.take(Findings("NVIDIA", (unit(0),)))
        steady.take(Findings("NVIDIA", (unit(0),)))
        assert steady.take(GOOD) == GOOD


def test_a_lost_device_is_believed_at_once() -> None:
    steady = Steady()
    steady.take(GOOD)

    lost = Findings("NVIDIA", (unit(0), unit(1, fault=Fault("degraded", "lost"))))

    assert len(inventory(steady.take(lost)).counted) == 1


def test_an_unlisted_address_does_not_end_the_patience() -> None:
    steady = Steady()
    steady.take(GOOD)
    nobody = unit(1, uuid="pci-0000:17:00.0", pci="0000:17:00.0", fault=Fault("degraded", "not-listed"))

    assert len(inventory(steady.take(Findings("NVIDIA", (unit(0), nobody)))).counted) == 2


def test_devices_given_to_virtual_machines_are_believed_at_once() -> None:
    steady = Steady()
    steady.take(GOOD)
    given = Findings("NVIDIA", (unit(0, uuid="pci", fault=Fault("passthrough", "passthrough")),))

    assert inventory(steady.take(given)).health.state == "passthrough"


def test_all_devices_gone_is_a_failing_probe() -> None:
    steady = Steady()
    steady.take(GOOD)

    told = [inventory(steady.take(Findings("NVIDIA"))) for _ in range(4)]

    assert [len(each.counted) for each in told] == [2, 2, 2, 0]
    assert told[0].health.state == "degraded"
    assert told[3].vendor is None


@pytest.mark.parametrize("times", [1, 2])
def test_a_vanished_device_keeps_its_place_in_front_of_new_ones(times: int) -> None:
    steady = Steady()
    steady.take(GOOD)
    found = GOOD
    for _ in range(times):
        found = steady.take(Findings("NVIDIA", (unit(0), unit(5))))

    assert {each.uuid for each in found.units} == {"GPU-0", "GPU-1", "GPU-5"}

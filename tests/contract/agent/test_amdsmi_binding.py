"""amdsmi through bindings that fail the way the released ones do."""

from types import SimpleNamespace
from typing import Any

import pytest

from flexinfer.adapters.gpu.amdsmi import AmdSmi


class AmdSmiLibraryException(Exception):
    """As in the binding; ``err_code`` is the library's."""

    def __init__(self, code: int) -> None:
        super().__init__(code)
        self.err_code = code


def binding(**functions: Any) -> Any:
    """A binding with these functions and no others."""
    return SimpleNamespace(
        AmdSmiException=AmdSmiLibraryException,
        AmdSmiLibraryException=AmdSmiLibraryException,
        **{"amdsmi_init": lambda: None, "amdsmi_get_processor_handles": lambda: ["gpu0"]} | functions,
    )


def failing(error: Exception) -> Any:
    def call(*_: Any) -> Any:
        raise error

    return call


@pytest.mark.parametrize(
    "error",
    [KeyError("ROCM_PATH"), KeyError("libamd_smi.so"), OSError("libamd_smi.so"), AttributeError("undefined symbol")],
)
async def test_a_binding_without_its_library_is_loaded_once_and_silently(
    error: Exception, capsys: pytest.CaptureFixture[str]
) -> None:
    loads = []

    def load() -> Any:
        loads.append(1)
        print("Unable to find libamd_smi.so library")  # noqa: T201 - what the binding does
        raise error

    library = AmdSmi(load=load)
    attempts = [(await library.read())[1] for _ in range(3)]

    assert len(loads) == 1
    assert [attempt.outcome for attempt in attempts] == ["absent"] * 3
    assert "libamd_smi.so" in attempts[0].detail
    assert capsys.readouterr().out == ""


async def test_newer_loaders_fail_at_the_first_call() -> None:
    library = AmdSmi(load=lambda: binding(amdsmi_init=failing(OSError("cannot open libamd_smi.so"))))

    attempts = [(await library.read())[1] for _ in range(2)]

    assert [(attempt.outcome, attempt.reason) for attempt in attempts] == [("absent", "library-not-found")] * 2


@pytest.mark.parametrize(
    ("code", "reason"), [(34, "driver-not-loaded"), (10, "no-permission"), (43, "unexpected-data"), (99, "error-99")]
)
async def test_a_failing_start_names_its_reason(code: int, reason: str) -> None:
    library = AmdSmi(load=lambda: binding(amdsmi_init=failing(AmdSmiLibraryException(code))))

    _, attempt = await library.read()

    assert (attempt.outcome, attempt.reason) == ("failed", reason)


async def test_a_start_without_devices_is_nothing_found() -> None:
    library = AmdSmi(load=lambda: binding(amdsmi_get_processor_handles=list))

    readings, attempt = await library.read()

    assert (list(readings), attempt.outcome) == ([], "nothing")


async def test_every_call_may_fail_alone() -> None:
    library = AmdSmi(
        load=lambda: binding(
            amdsmi_get_gpu_device_bdf=lambda _: "0000:03:00.0",
            amdsmi_get_gpu_asic_info=failing(AmdSmiLibraryException(2)),
            amdsmi_get_gpu_vram_info=lambda _: {"vram_size_mb": 24560},
            amdsmi_get_gpu_activity=lambda _: {"gfx_activity": "N/A"},
            amdsmi_get_power_info=lambda _: {"average_socket_power": "N/A", "current_socket_power": 98},
        )
    )

    readings, _ = await library.read()

    assert (readings[0].pci, readings[0].name, readings[0].vram_bytes) == ("0000:03:00.0", None, 24560 << 20)
    assert (readings[0].live.util_percent, readings[0].live.power_watts) == (None, 98)


async def test_a_name_no_chip_has_is_refused() -> None:
    library = AmdSmi(load=lambda: binding(amdsmi_get_gpu_asic_info=lambda _: {"target_graphics_version": "gfx2332"}))

    readings, _ = await library.read()

    assert readings[0].arch is None

"""amdsmi, AMD's library binding. Without its library it does not raise ImportError but KeyError or OSError, prints
to stdout, and does so again at each import: it is imported once, on a worker's thread, with stdout caught."""

import contextlib
import io
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flexinfer.adapters.gpu.worker import Worker, WorkerStuck
from flexinfer.core.hardware.amd import Reading
from flexinfer.core.hardware.amd_smi import library_reading
from flexinfer.core.hardware.findings import Attempt

INIT_SECONDS = 8.0
READ_SECONDS = 5.0

_CODES = {2: "not-supported", 10: "no-permission", 31: "no-devices", 34: "driver-not-loaded", 43: "unexpected-data"}
# What to ask, under which names it has been known, and whether it can change.
_FACTS = {
    "bdf": ("amdsmi_get_gpu_device_bdf", "amdsmi_get_device_bdf"),
    "asic": ("amdsmi_get_gpu_asic_info", "amdsmi_get_asic_info"),
    "board": ("amdsmi_get_gpu_board_info", "amdsmi_get_board_info"),
    "driver": ("amdsmi_get_gpu_driver_info", "amdsmi_get_driver_info"),
    "vram_info": ("amdsmi_get_gpu_vram_info",),
    "compute_partition": ("amdsmi_get_gpu_compute_partition",),
    "memory_partition": ("amdsmi_get_gpu_memory_partition",),
}
_FIGURES = {
    "vram_usage": ("amdsmi_get_gpu_vram_usage", "amdsmi_get_vram_usage"),
    "activity": ("amdsmi_get_gpu_activity",),
    "power": ("amdsmi_get_power_info", "amdsmi_get_power_measure"),
    "ecc": ("amdsmi_get_gpu_total_ecc_count",),
}


def _import() -> Any:
    import amdsmi  # noqa: PLC0415 - optional, and loaded on the worker's thread only

    return amdsmi


@dataclass(slots=True)
class AmdSmi:
    """One library on one thread. ``load`` imports the binding; tests pass their own."""

    load: Callable[[], Any] = _import
    worker: Worker = field(default_factory=lambda: Worker("amdsmi"))
    _lib: Any = None
    _errors: tuple[type[BaseException], ...] = ()
    _missing: str = ""
    _detail: str = ""
    _ready: bool = False
    _handles: Sequence[Any] = ()
    _facts: dict[int, dict[str, Any]] = field(default_factory=dict)

    async def read(self, *, live_only: bool = False) -> tuple[Sequence[Reading], Attempt]:
        """Every device, and how it went. A binding that failed to load is not tried again."""
        if self._missing:
            return (), Attempt("amdsmi", "absent", self._missing, self._detail)
        try:
            return await self.worker.call(
                lambda: self._read(live_only=live_only), READ_SECONDS if self._ready else INIT_SECONDS
            )
        except WorkerStuck as err:
            return (), Attempt("amdsmi", "timeout", "timeout", str(err))

    # Everything below runs on the worker's thread.

    def _read(self, *, live_only: bool) -> tuple[Sequence[Reading], Attempt]:
        if self._lib is None and not self._load():
            return (), Attempt("amdsmi", "absent", self._missing, self._detail)
        if not self._ready:
            failed = self._start()
            if failed:
                return (), failed
        if not self._handles:
            self._ready = False
            return (), Attempt("amdsmi", "nothing", "no-devices")
        return [self._device(at, handle, live_only=live_only) for at, handle in enumerate(self._handles)], Attempt(
            "amdsmi", "ok"
        )

    def _load(self) -> bool:
        caught = io.StringIO()
        try:
            with contextlib.redirect_stdout(caught):
                self._lib = self.load()
        except (ImportError, KeyError, OSError, AttributeError, SyntaxError, ValueError) as err:
            self._missing = "not-installed" if isinstance(err, ImportError) else "import-failed"
            lines = caught.getvalue().split("\n")
            self._detail = " ".join([f"{type(err).__name__}: {err}", *lines]).strip()[:200]
            return False
        named = [getattr(self._lib, name, None) for name in ("AmdSmiException", "AmdSmiLibraryException")]
        own = tuple(error for error in named if isinstance(error, type) and issubclass(error, BaseException))
        # The loader of newer releases raises OSError at the first call; older ones lack functions.
        self._errors = (*own, OSError, AttributeError, KeyError, TypeError, ValueError)
        return True

    def _start(self) -> Attempt | None:
        try:
            with contextlib.redirect_stdout(io.StringIO()):
                self._lib.amdsmi_init()
                get = getattr(self._lib, "amdsmi_get_processor_handles", None) or self._lib.amdsmi_get_device_handles
                self._handles = list(get())
        except self._errors as err:
            code = int(getattr(err, "err_code", 0) or 0)
            if isinstance(err, OSError):
                self._missing, self._detail = "library-not-found", str(err)[:200]
                return Attempt("amdsmi", "absent", self._missing, self._detail)
            return Attempt(
                "amdsmi", "failed", _CODES.get(code, f"error-{code}" if code else "init-failed"), str(err)[:200]
            )
        self._ready = True
        self._facts.clear()
        return None

    def _device(self, at: int, handle: Any, *, live_only: bool) -> Reading:
        facts = self._facts.get(at)
        if facts is None or not live_only:
            facts = self._facts[at] = {name: self._ask(names, handle) for name, names in _FACTS.items()}
        answers = facts | {name: self._ask(names, handle) for name, names in _FIGURES.items()}
        answers["temp_edge"] = self._temperature(handle, "EDGE")
        answers["temp_hotspot"] = self._temperature(handle, "HOTSPOT")
        answers["clock"] = self._of_kind("amdsmi_get_clock_info", handle, "AmdSmiClkType", "GFX")
        answers["gtt_total"] = self._of_kind("amdsmi_get_gpu_memory_total", handle, "AmdSmiMemoryType", "GTT")
        answers["gtt_used"] = self._of_kind("amdsmi_get_gpu_memory_usage", handle, "AmdSmiMemoryType", "GTT")
        return library_reading(at, answers)

    def _ask(self, names: Sequence[str], *args: Any) -> Any:
        """The answer of the first of ``names`` that exists, or None if it fails."""
        for name in names:
            function = getattr(self._lib, name, None)
            if function is not None:
                try:
                    return function(*args)
                except self._errors:
                    return None
        return None

    def _of_kind(self, function: str, handle: Any, enum: str, member: str) -> Any:
        kind = getattr(getattr(self._lib, enum, None), member, None)
        return None if kind is None else self._ask((function,), handle, kind)

    def _temperature(self, handle: Any, sensor: str) -> Any:
        kind = getattr(getattr(self._lib, "AmdSmiTemperatureType", None), sensor, None)
        current = getattr(getattr(self._lib, "AmdSmiTemperatureMetric", None), "CURRENT", None)
        names = ("amdsmi_get_temp_metric", "amdsmi_dev_get_temp_metric")
        return None if kind is None or current is None else self._ask(names, handle, kind, current)

"""NVML through nvidia-ml-py. Every call is on its own: a failing field is None, a failing handle is one lost device,
a failing start means "use the tool"."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from flexinfer.adapters.gpu.worker import Worker, WorkerStuck
from flexinfer.core.hardware import nvml as answers
from flexinfer.core.hardware.findings import Attempt
from flexinfer.core.hardware.nvidia import Part, Reading, throttle_reasons
from flexinfer.core.hardware.pci import address_of
from flexinfer.core.hardware.readings import text_of

INIT_SECONDS = 8.0
READ_SECONDS = 5.0
MOST_EVENTS = 64
# After these the old handles are dead and the library must be started again.
_START_AGAIN = frozenset(
    {"Uninitialized", "GpuIsLost", "Unknown", "DriverNotLoaded", "LibRmVersionMismatch", "ResetRequired"}
)
_NOT_THERE = frozenset({"LibraryNotFound"})


def _import() -> Any:
    import pynvml  # noqa: PLC0415 - optional, and loaded on the worker's thread only

    return pynvml


@dataclass(slots=True)
class Nvml:
    """One library on one thread. ``load`` imports the binding; tests pass their own."""

    load: Callable[[], Any] = _import
    worker: Worker = field(default_factory=lambda: Worker("nvml"))
    _lib: Any = None
    _errors: tuple[type[BaseException], ...] = ()
    _ready: bool = False
    _missing: str = ""
    _handles: dict[int, Any] = field(default_factory=dict)
    _facts: dict[int, Reading] = field(default_factory=dict)
    _events: Any = None
    _xids: dict[int, int] = field(default_factory=dict)
    _driver: str | None = None

    async def read(self, *, live_only: bool = False) -> tuple[Sequence[Reading], Attempt]:
        """Every device, and how it went. ``live_only`` keeps what cannot change from the last full read."""
        if self._missing:
            return (), Attempt("nvml", "absent", self._missing)
        try:
            return await self.worker.call(
                lambda: self._read(live_only=live_only), READ_SECONDS if self._ready else INIT_SECONDS
            )
        except WorkerStuck as err:
            return (), Attempt("nvml", "timeout", "timeout", str(err))

    # Everything below runs on the worker's thread.

    def _read(self, *, live_only: bool) -> tuple[Sequence[Reading], Attempt]:
        failed = self._start()
        if failed:
            return (), failed
        total = self._ask("nvmlDeviceGetCount")
        if total.error in _START_AGAIN:
            self._stop()
            failed = self._start()
            if failed:
                return (), failed
            total = self._ask("nvmlDeviceGetCount")
        if total.error:
            return (), Attempt("nvml", "failed", answers.reason(total.error), total.error)
        if not total.value:
            return (), Attempt("nvml", "nothing", "no-devices")
        self._notice_driver()
        self._drain_events()
        readings = [self._device(index, live_only=live_only) for index in range(int(total.value))]
        if any(reading.condition for reading in readings):
            self._stop()
        return readings, Attempt("nvml", "ok")

    def _start(self) -> Attempt | None:
        if self._ready:
            return None
        if self._lib is None:
            try:
                self._lib = self.load()
            except (ImportError, OSError, KeyError, AttributeError, SyntaxError, ValueError) as err:
                self._missing = "not-installed" if isinstance(err, ImportError) else "import-failed"
                return Attempt("nvml", "absent", self._missing, str(err)[:200])
            base = getattr(self._lib, "NVMLError", RuntimeError)
            # Names that are not UTF-8, functions an old or stubbed binding lacks, and ctypes' own complaints.
            self._errors = (base, UnicodeDecodeError, AttributeError, OSError, TypeError, ValueError)
        started = self._ask("nvmlInit")
        if started.error in _NOT_THERE:
            return Attempt("nvml", "absent", "library-not-found")
        if started.error:
            return Attempt("nvml", "failed", answers.reason(started.error), started.error)
        self._ready = True
        return None

    def _stop(self) -> None:
        self._ask("nvmlShutdown")
        self._ready = False
        self._handles.clear()
        self._facts.clear()
        self._events = None

    def _ask(self, function: str, *args: Any) -> answers.Answer:
        try:
            return answers.Answer(getattr(self._lib, function)(*args))
        except self._errors as err:
            return answers.Answer(error=answers.error_name(type(err).__name__))

    def _notice_driver(self) -> None:
        """A driver that was replaced under us leaves dead handles."""
        version = answers.text(self._ask("nvmlSystemGetDriverVersion").value)
        if self._driver is not None and version != self._driver:
            self._stop()
            self._start()
        self._driver = version

    def _device(self, index: int, *, live_only: bool) -> Reading:
        handle = self._handles.get(index)
        if handle is None:
            got = self._ask("nvmlDeviceGetHandleByIndex", index)
            if got.error:
                return Reading(index=index, condition=answers.condition(got.error), driver=self._driver)
            handle = self._handles[index] = got.value
            self._watch(handle)
        facts = self._facts.get(index)
        if facts is None or not live_only:
            facts = self._facts[index] = self._read_facts(index, handle)
        return self._with_figures(facts, handle)

    def _read_facts(self, index: int, handle: Any) -> Reading:
        pci = self._ask("nvmlDeviceGetPciInfo", handle).value
        mig = self._ask("nvmlDeviceGetMigMode", handle).value
        return Reading(
            index=index,
            uuid=answers.text(self._ask("nvmlDeviceGetUUID", handle).value),
            name=answers.text(self._ask("nvmlDeviceGetName", handle).value),
            pci=address_of(text_of(getattr(pci, "busId", None))) if pci is not None else None,
            capability=answers.capability(self._ask("nvmlDeviceGetCudaComputeCapability", handle).value),
            driver=self._driver,
            mig=isinstance(mig, list | tuple) and bool(mig) and mig[0] == 1,
        )

    def _with_figures(self, facts: Reading, handle: Any) -> Reading:
        memory = self._ask("nvmlDeviceGetMemoryInfo", handle)
        live = answers.live(
            util=getattr(self._ask("nvmlDeviceGetUtilizationRates", handle).value, "gpu", None),
            memory=memory.value,
            temperature=self._ask(
                "nvmlDeviceGetTemperature", handle, getattr(self._lib, "NVML_TEMPERATURE_GPU", 0)
            ).value,
            milliwatts=self._ask("nvmlDeviceGetPowerUsage", handle).value,
            clock=self._ask("nvmlDeviceGetClockInfo", handle, getattr(self._lib, "NVML_CLOCK_SM", 1)).value,
            throttle=throttle_reasons(answers.whole(self._throttle(handle))),
            ecc=self._ecc(handle),
            xid=self._xids.get(facts.index),
        )
        return answers.complete(facts, memory, live, self._parts(handle) if facts.mig else None)

    def _throttle(self, handle: Any) -> Any:
        asked = self._ask("nvmlDeviceGetCurrentClocksEventReasons", handle)
        return self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", handle).value if asked.error else asked.value

    def _ecc(self, handle: Any) -> int | None:
        uncorrected = getattr(self._lib, "NVML_MEMORY_ERROR_TYPE_UNCORRECTED", 1)
        volatile = getattr(self._lib, "NVML_VOLATILE_ECC", 0)
        return answers.whole(self._ask("nvmlDeviceGetTotalEccErrors", handle, uncorrected, volatile).value)

    def _parts(self, handle: Any) -> list[Part] | None:
        most = self._ask("nvmlDeviceGetMaxMigDeviceCount", handle)
        if most.error:
            return None
        found: list[Part] = []
        for index in range(min(int(most.value or 0), 64)):
            part = self._ask("nvmlDeviceGetMigDeviceHandleByIndex", handle, index).value
            if part is None:
                continue
            uuid = answers.text(self._ask("nvmlDeviceGetUUID", part).value)
            name = answers.text(self._ask("nvmlDeviceGetName", part).value)
            memory = self._ask("nvmlDeviceGetMemoryInfo", part).value
            found.append(answers.part(uuid or f"mig-{index}", name or "", memory))
        return found

    def _watch(self, handle: Any) -> None:
        """Ask for critical errors of a device; drivers that cannot tell them leave ``xid_last`` unknown."""
        kind = getattr(self._lib, "nvmlEventTypeXidCriticalError", None)
        if kind is None:
            return
        if self._events is None:
            self._events = self._ask("nvmlEventSetCreate").value
        if self._events is not None:
            self._ask("nvmlDeviceRegisterEvents", handle, kind, self._events)

    def _drain_events(self) -> None:
        for _ in range(MOST_EVENTS if self._events is not None else 0):
            event = self._ask("nvmlEventSetWait_v2", self._events, 0)
            if event.error or event.value is None:
                return
            index = self._ask("nvmlDeviceGetIndex", getattr(event.value, "device", None)).value
            xid = answers.whole(getattr(event.value, "eventData", None))
            if index is not None and xid is not None:
                self._xids[int(index)] = xid

"""Drift over a whole fleet: which engine is measured by which result, and what changed its verdict.

Fed with hardware, results, pods and telemetry; it forgets engines that their node no longer reports.
"""

from dataclasses import dataclass, field

from flexinfer.contracts.envelope import Event
from flexinfer.contracts.events import BenchCompleted, BenchDrifted, EngineTelemetry, NodeHardware, NodeTelemetry
from flexinfer.core.benchmark.drift import Drift, expected_speed, observe
from flexinfer.core.benchmark.energy import demanded_count
from flexinfer.core.fleet.identity import driver_major
from flexinfer.core.hardware.device_class import classes_of

Name = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Served:
    """An engine pod: the workload it serves and the model it belongs to."""

    workload: str
    model: str


@dataclass(slots=True)
class _Engine:
    drift: Drift
    result: BenchCompleted


@dataclass(slots=True)
class DriftWatch:
    """``engines`` by node, then (namespace, pod)."""

    pods: dict[Name, Served] = field(default_factory=dict)
    engines: dict[str, dict[Name, _Engine]] = field(default_factory=dict)
    _hardware: dict[str, NodeHardware] = field(default_factory=dict)
    _results: dict[str, dict[str, BenchCompleted]] = field(default_factory=dict)  # workload → key → result

    def fold(self, event: Event) -> tuple[BenchDrifted, ...]:
        """One event of the bus; the drifts it begins and ends."""
        match event.data:
            case BenchCompleted() as data:
                self._results.setdefault(data.workload, {})[data.key] = data
                return self._measured_again(data)
            case NodeHardware() as data:
                self._hardware[data.node] = data
            case NodeTelemetry() as data:
                return self._telemetry(event.at, data)
            case _:
                pass
        return ()

    def ratios(self, node: str) -> dict[Name, float]:
        """(namespace, model) → live / measured speed on one node; the slowest replica of a model, once seen busy."""
        worst: dict[Name, float] = {}
        for pod, engine in self.engines.get(node, {}).items():
            ratio, served = engine.drift.ratio, self.pods.get(pod)
            if ratio is not None and served is not None:
                series = (pod[0], served.model)
                worst[series] = min(ratio, worst.get(series, ratio))
        return worst

    def _telemetry(self, at: float, data: NodeTelemetry) -> tuple[BenchDrifted, ...]:
        known = self.engines.setdefault(data.node, {})
        there = {(engine.namespace, engine.pod) for engine in data.engines}
        for pod in [pod for pod in known if pod not in there]:
            del known[pod]
        if not data.engines:
            del self.engines[data.node]
        changes = (self._engine(at, data.node, known, engine) for engine in data.engines)
        return tuple(change for change in changes if change is not None)

    def _engine(self, at: float, node: str, known: dict[Name, _Engine], told: EngineTelemetry) -> BenchDrifted | None:
        pod = (told.namespace, told.pod)
        served = self.pods.get(pod)
        result = self._result(node, served.workload) if served else None
        if served is None or result is None:
            known.pop(pod, None)
            return None
        before = known.get(pod)
        if before is None or before.result.key != result.key:
            before = _Engine(Drift(), result)
        expected = expected_speed(result, told.requests_running) if told.requests_running else None
        drift = observe(before.drift, at, told.requests_running, told.tokens_per_second, expected)
        known[pod] = _Engine(drift, result)
        if drift.flagged == before.drift.flagged:
            return None
        return _change(node, pod, served, known[pod])

    def _result(self, node: str, workload: str) -> BenchCompleted | None:
        """The result for this workload on what the node has; the one of the same driver major if there are several."""
        hardware = self._hardware.get(node)
        if hardware is None:
            return None
        fitting = [
            result
            for result in self._results.get(workload, {}).values()
            if result.device_class in classes_of(hardware, demanded_count(result.device_class))
        ]
        driver = driver_major(next((device for device in hardware.devices if device.counted), None))
        return max(fitting, key=lambda r: (r.driver_major == driver, r.key), default=None)

    def _measured_again(self, result: BenchCompleted) -> tuple[BenchDrifted, ...]:
        """What drifted from an older measurement is judged by the new one, from the beginning."""
        over = []
        for node, engines in self.engines.items():
            for pod, engine in engines.items():
                if engine.result.key != result.key or engine.result == result:
                    continue
                was, served = engine.drift.flagged, self.pods.get(pod)
                engines[pod] = _Engine(Drift(), result)
                if was and served is not None:
                    over.append(_change(node, pod, served, engines[pod]))
        return tuple(over)


def _change(node: str, pod: Name, served: Served, engine: _Engine) -> BenchDrifted:
    drift = engine.drift
    return BenchDrifted(
        key=engine.result.key,
        namespace=pod[0],
        model=served.model,
        pod=pod[1],
        node=node,
        device_class=engine.result.device_class,
        drifted=drift.flagged,
        ratio=drift.ratio or 0.0,
        tokens_per_second=drift.live or 0.0,
        expected_tokens_per_second=drift.expected or 0.0,
    )

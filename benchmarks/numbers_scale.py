"""The parts of docs/numbers.md about size and about where pods go, and the arithmetic for fleets nobody measured."""

from collections.abc import Mapping, Sequence
from typing import Any

from numbers_rows import Make, Results, Row, Section, least, most

NODES = 5000
INTERVAL = 2.0  # seconds, an agent's default
DASH = "–"


def _agents(r: Results) -> Mapping[str, Any]:
    found: Mapping[str, Any] = r["scale_agents"]
    if (found["nodes"], found["hertz"]) != (NODES, 1.0):
        raise ValueError(f"measured with {found['nodes']} agents at {found['hertz']} Hz")
    return found


def _growth(kind: str) -> Row:
    def of(r: Results) -> Mapping[str, Any]:
        found: Mapping[str, Any] = r["scale_fleet"]["event_cost_us"][kind]
        return found

    return most(f"cost of an event, 5,000 nodes to 100: {kind}", 1.5, lambda r: of(r)["ratio"], " ×", _series(of))


def _series(of: Make) -> Make:
    return lambda r: ", ".join(f"{int(size):,}: {value:.0f} µs" for size, value in of(r).items() if size != "ratio")


SCALE = Section(
    "Scale",
    (
        most("5,000 agents at 1 Hz: extender", 0.5, lambda r: _agents(r)["cores"]["extender"], " cores",
             lambda r: f"nats-server {_agents(r)['cores']['nats-server']:.2f} cores and "
             f"{_agents(r)['resident_mb']['nats-server']} MB; per event: extender "
             f"{_agents(r)['cpu_us_per_event']['extender']} µs, nats-server "
             f"{_agents(r)['cpu_us_per_event']['nats-server']} µs"),
        most("5,000 agents at 1 Hz: freshness, p99", 50, lambda r: _agents(r)["publish_to_score_ms"]["p99"], " ms",
             lambda r: f"p50 {_agents(r)['publish_to_score_ms']['p50']:.0f} ms; "
             f"{_agents(r)['agents']['events_per_second']:,.0f} events/s arrived; load of the machine "
             f"{_agents(r)['load_of_the_machine_per_core']:.1f} per core", 0),
        _growth("telemetry"), _growth("pod bound or ended"), _growth("filter and prioritize, 100 names"),
        most("view of 5,000 nodes, processor time to warm", 0.5,
             lambda r: r["scale_fleet"]["start"]["5000"]["warm_cpu_seconds"], " s",
             lambda r: f"{r['scale_fleet']['start']['5000']['memory_mb']:.0f} MB"),
        most("manager, cost of an event, 10,000 models to 100, worst kind", 1.5,
             lambda r: max(row["ratio"] for row in r["scale_models"]["event_cost_us"].values()), " ×",
             lambda r: f"{r['scale_models']['filled']['10000']['memory_mb']:.0f} MB with 10,000 models, "
             f"{r['scale_models']['filled']['10000']['cpu_ms_per_model']:.1f} ms of processor time for each from "
             "creation to Running"),
        Row("telemetry of a day through the log", "within its limit, state unharmed",
            lambda r: f"{r['scale_log']['most_bytes'] / 2**20:.0f} of {r['scale_log']['limit_bytes'] / 2**20:.0f} MiB "
            f"({r['scale_log']['disk_bytes'] / 2**20:.0f} MiB on disk), {r['scale_log']['state_keys']:,} keys unharmed",
            lambda r: f"{r['scale_log']['hours']:g} hours of {r['scale_log']['nodes']:,} nodes: "
            f"{r['scale_log']['published']:,} events at "
            f"{r['scale_log']['events_per_second']:,} per second",
            lambda r: r["scale_log"]["within_limit"] and r["scale_log"]["state_unharmed"]
            and not r["scale_log"]["refused"]),
    ),
    {
        "scale_agents": "python -m benchmarks scale_agents", "scale_fleet": "python -m benchmarks scale_fleet",
        "scale_models": "python -m benchmarks scale_models", "scale_log": "python -m benchmarks scale_log",
    },
    "Simulated on one machine. Agents: a connection, an acknowledged state write and a live copy for each event, all "
    "from one process. Models: the manager's own view, reducer and planner in one process, without API.",
    lambda r: "\n".join([
        "![cost by size of the fleet](../benchmarks/results/scale_fleet.svg)",
        *(["![cost by number of models](../benchmarks/results/scale_models.svg)"] if "scale_models" in r else []),
    ]),
)  # fmt: skip


def _summary(kind: str, name: str) -> Make:
    return lambda r: r["placement_best"]["summary"][kind][name]


def _against(what: str, kind: str) -> Row:
    def beside(r: Results) -> str:
        found = r["placement_best"]["summary"][kind]
        return (
            f"*{found['best_online']}*; within the goal in {found['families_within_goal']} of {found['families']} "
            f"families; {found['extender_to_clairvoyant']:.3f} of one who knows what no scheduler can; "
            f"{found['to_round_robin']:.2f} × round robin, {found['to_least_loaded']:.2f} × least loaded, "
            f"{found['to_vram_fit']:.2f} × VRAM fit"
        )

    return least(what, 0.95, _summary(kind, "extender_to_best_online"), " of it", beside, 3)


def _families(r: Results) -> str:
    found = r["placement_best"]
    changes = list(next(row["if"] for row in found["families"] if row["if"]))
    head = ["Fleet and pods", "best online policy", "extender", *(f"if {name}" for name in changes)]
    rows: list[Sequence[str]] = [
        [
            row["family"], row["best_online"], f"{row['extender_to_best_online']:.3f}",
            *(f"{row['if'][name]:.3f}" if name in row["if"] else DASH for name in changes),
        ]
        for row in found["families"]
    ]  # fmt: skip
    small = [
        [
            row["family"], str(row["cases"]), f"{row['share_of_optimum']['extender']:.3f}",
            f"{max(row['share_of_optimum'].values()):.3f}", f"{row['share_of_optimum']['round robin']:.3f}",
            f"{row['extender_worst']:.3f}",
        ]
        for row in found["offline"]
    ]  # fmt: skip
    return "\n".join([
        ("Shares of the best online policy, and what one change of ours would give. The weights are flags "
        "([scheduling.md](scheduling.md#rank)); *the best sum always gets the pod* is what whole numbers from 0 to 10 "
        "cost."),
        "", *_table(head, rows), "",
        "![shares of the best policy](../benchmarks/results/placement_best.svg)", "",
        "Shares of the exact offline optimum, of one who knows all that comes, on small cases:", "",
        *_table(["Cases", "number", "extender", "best policy", "round robin", "extender, worst case"], small), "",
        "![shares of the offline optimum](../benchmarks/results/placement_offline.svg)",
    ])  # fmt: skip


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [f"| {' | '.join(line)} |" for line in (head, ["---"] * len(head), *rows)]


PLACEMENT = Section(
    "Placement",
    (
        _against("whole devices, against the best online policy", "whole devices"),
        _against("pods that share a device, against the best online policy", "shared"),
        Row("fleets of one fast card to two slow ones, idle, to round robin", DASH,
            lambda r: f"{min(row['to_round_robin'] for row in r['extender_quality']['fleets']):.2f} × at least",
            lambda r: "the most there is in "
            f"{sum(row['extender'] == row['best'] for row in r['extender_quality']['fleets'])} of "
            f"{len(r['extender_quality']['fleets'])} cases"),
    ),
    {
        "placement_best": "python -m benchmarks placement_best",
        "extender_quality": "python -m benchmarks extender_quality",
    },
    "Tokens/s of random mixed fleets of three vendors over time, through the real filter, ranking and reservations.",
    _families,
)  # fmt: skip


def on_paper(r: Results) -> str:
    """The arithmetic for 50,000 nodes, from what was measured with 5,000."""
    head = "## 50,000 nodes, on paper\n\n"
    try:
        return head + _arithmetic(_agents(r), r["scale_log"], r["scale_fleet"])
    except (KeyError, ValueError):
        return head + f"Needs the measurement with {NODES:,} agents.\n"


def _arithmetic(agents: Mapping[str, Any], log: Mapping[str, Any], fleet: Mapping[str, Any]) -> str:
    clusters, nodes = 10, NODES
    bus_us, extender_us = agents["cpu_us_per_event"]["nats-server"], agents["cpu_us_per_event"]["extender"]
    size = agents["agents"]["bytes_per_event"]
    events = nodes / INTERVAL
    all_events = clusters * events
    memory, start = fleet["start"][str(nodes)]["memory_mb"], fleet["start"][str(nodes)]["warm_cpu_seconds"]
    proxies, headroom = 4, 2000
    leaf = clusters * proxies * headroom / 2.0
    hours = log["hours_kept_by_nodes"][str(nodes)]
    per_day = log["bytes_per_event"] * nodes * 86400 / 60
    return "\n".join([
        ("Nobody ran this. One event costs nats-server "
        f"{bus_us} µs and each extender {extender_us} µs, and is {size:,} bytes on the wire (state write and live "
        f"copy); agents speak every {INTERVAL:g} s."),
        "",
        *_table(["", "one cluster of 50,000", f"each of {clusters} clusters of {nodes:,}"], [
            ["events/s", f"50,000 / {INTERVAL:g} = {all_events:,.0f}", f"{nodes:,} / {INTERVAL:g} = {events:,.0f}"],
            ["nats-server", f"{all_events:,.0f} × {bus_us} µs = {all_events * bus_us / 1e6:.1f} cores",
             f"{events * bus_us / 1e6:.2f} cores"],
            ["into the bus", f"{all_events:,.0f} × {size:,} B = {all_events * size / 1e6:.0f} MB/s",
             f"{events * size / 1e6:.1f} MB/s"],
            ["extender, one thread", f"{all_events * extender_us / 1e6:.1f} cores",
             f"{events * extender_us / 1e6:.2f} cores"],
            ["view", f"{memory * clusters:.0f} MB, {start * clusters:.1f} s to warm",
             f"{memory:.0f} MB, {start:.1f} s"],
            ["log, sampled once a minute", f"{per_day * clusters / 1e9:.0f} GB a day", f"{per_day / 1e9:.1f} GB a day"],
        ]),
        "",
        (f"One cluster of 50,000 asks for {all_events * extender_us / 1e6:.1f} cores of a process that has one thread, "
        "so it does not work; nor does Kubernetes promise more than 5,000 nodes in a cluster. Ten clusters share "
        "nothing of this: over the leaf connections ([multi-cluster.md](multi-cluster.md)) goes what the hub's global "
        f"proxy reads, which is headroom: {clusters} clusters × {proxies} proxies × about {headroom:,} bytes (twenty "
        f"models) every 2 s = {leaf / 1e3:.0f} kB/s into the hub, whatever the number of nodes."),
        "",
        (f"The log keeps {log['limit_bytes'] / 2**20:.0f} MiB by default. Of telemetry alone that is {hours:g} hours "
        f"at {nodes:,} nodes and {log['hours_kept_by_nodes']['500']:g} at 500; for a day of {nodes:,} nodes it has to "
        f"be {per_day / 2**30:.1f} GiB. On disk it takes "
        f"{100 * log['disk_bytes'] / log['most_bytes']:.0f} % of that, because it is compressed."),
        "",
    ])  # fmt: skip

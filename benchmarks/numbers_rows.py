"""The rows of docs/numbers.md: what each goal is and where in the result files its figure stands."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

Results = Mapping[str, Any]
Make = Callable[[Results], Any]


@dataclass(frozen=True, slots=True)
class Row:
    """``figure`` and ``beside`` are texts or made from the results; ``met`` None: no goal."""

    what: str
    goal: str
    figure: Make
    beside: Make | str = ""
    met: Make | None = None


@dataclass(frozen=True, slots=True)
class Section:
    """``commands``: result file -> what writes it. ``more``: text after the table."""

    title: str
    rows: tuple[Row, ...]
    commands: Mapping[str, str] = field(default_factory=dict)
    text: str = ""
    more: Make | None = None


def most(what: str, limit: float, value: Make, unit: str = "", beside: Make | str = "", digits: int = 2) -> Row:
    """A figure that must not exceed ``limit``."""
    return Row(
        what, f"≤ {limit:g}{unit}", lambda r: f"{value(r):.{digits}f}{unit}", beside, lambda r: value(r) <= limit
    )


def least(what: str, limit: float, value: Make, unit: str = "", beside: Make | str = "", digits: int = 2) -> Row:
    """A figure that must reach ``limit``."""
    goal = f"≥ {limit:,g}{unit}"
    return Row(what, goal, lambda r: f"{value(r):,.{digits}f}{unit}", beside, lambda r: value(r) >= limit)


def asked(r: Results, nodes: int, path: str, case: str, events: int, form: str = "NodeNames") -> dict[str, Any]:
    """A row of the extender's result, one caller."""
    wanted = (nodes, path, case, events, form, 1)
    names = ("nodes", "path", "case", "events_per_second", "form", "callers")
    return next(row for row in r["extender"]["rows"] if tuple(row[name] for name in names) == wanted)


def to_echo(*which: Any) -> Make:
    return lambda r: asked(r, *which)["ratio_to_echo"]


def times(*which: Any) -> Make:
    return lambda r: f"{asked(r, *which)['p50_ms']:.2f} ms, echo {asked(r, *which)['echo_p50_ms']:.2f} ms"


def tail(nodes: int) -> Row:
    def of(r: Results) -> dict[str, Any]:
        return next(row for row in r["extender"]["tails"] if row["nodes"] == nodes)

    return most(
        f"99th percentile with 1,000 events/s, {nodes:,} names", 1.2, lambda r: of(r)["ratio"], " ×",
        lambda r: f"{of(r)['p99_events_ms']:.1f} ms, without events {of(r)['p99_idle_ms']:.1f} ms",
    )  # fmt: skip


EXTENDER = Section(
    "Extender",
    (
        most("`/filter`, 5,000 names, new demand", 6, to_echo(5000, "/filter", "cold", 0), " ×",
             times(5000, "/filter", "cold", 0)),
        most("`/filter`, 5,000 names, the same demand again, 1,000 events/s", 2.5,
             to_echo(5000, "/filter", "repeat", 1000), " ×", times(5000, "/filter", "repeat", 1000)),
        most("`/filter`, 200 names, new demand", 2, to_echo(200, "/filter", "cold", 0), " ×",
             times(200, "/filter", "cold", 0)),
        most("`/filter`, 200 names, the same demand again", 2, to_echo(200, "/filter", "repeat", 0), " ×",
             times(200, "/filter", "repeat", 0)),
        most("`/prioritize` to `/filter`, 5,000 names", 1.5,
             lambda r: asked(r, 5000, "/prioritize", "cold", 0)["p50_ms"]
             / asked(r, 5000, "/filter", "cold", 0)["p50_ms"],
             " ×", times(5000, "/prioritize", "cold", 0)),
        most("1,000 whole Nodes (6 MB)", 1.5, to_echo(1000, "/filter", "cold", 0, "Nodes"), " ×",
             times(1000, "/filter", "cold", 0, "Nodes")),
        tail(200), tail(1000), tail(5000),
        most("event on the bus to the score that counts it, 1,000 nodes at 1 Hz, p99", 50,
             lambda r: r["extender_latency"]["publish_to_score_ms"]["p99"], " ms",
             lambda r: f"p50 {r['extender_latency']['publish_to_score_ms']['p50']:.1f} ms, "
             f"one answer alone {r['extender_latency']['one_answer_ms_p50']:.1f} ms", 1),
        most("5,000 nodes on the bus to a warm view", 0.5,
             lambda r: r["extender_warm"]["snapshot_to_warm_seconds"]["median"], " s"),
        most("the same after a restart of the bus", 2,
             lambda r: r["extender_warm"]["resync_after_restart_seconds"]["median"], " s"),
        least("kube-scheduler, 1,000 nodes, client limits raised", 0.9,
              lambda r: r["extender_kube_scheduler"]["flexinfer_to_echo"], " ×",
              lambda r: "{flexinfer:.0f} pods/s, an extender that only echoes {echo:.0f}, none {none:.0f}".format(
                  **r["extender_kube_scheduler"]["pods_per_second"])),
    ),
    {
        "extender": "python -m benchmarks extender", "extender_latency": "python -m benchmarks extender_latency",
        "extender_warm": "python -m benchmarks extender_warm",
        "extender_kube_scheduler": "python benchmarks/extender_kube_scheduler.py --output FILE",
    },
    "Ratios are to a raw ASGI echo of the same bytes on the same server, asked in turn.",
)  # fmt: skip

PROXIES = Section(
    "Proxies",
    (
        most("added p50", 0.5, lambda r: r["proxy_peers"]["ratios"]["added_p50_ms"], " ms",
             lambda r: ", ".join(f"{name} {r['proxy_peers']['latency'][name]['added_p50_ms']:.2f} ms"
                                 for name in ("vllm-router", "litellm"))),
        least("requests/s to vllm-router's (Rust), one worker", 0.5,
              lambda r: r["proxy_peers"]["ratios"]["throughput_over_vllm-router"], " ×",
              lambda r: f"{r['proxy_peers']['throughput']['flexinfer-proxy']['requests_per_second']:,.0f} requests/s, "
              f"vllm-router {r['proxy_peers']['throughput']['vllm-router']['requests_per_second']:,.0f}"),
        least("requests/s to LiteLLM's", 50, lambda r: r["proxy_peers"]["ratios"]["throughput_over_litellm"], " ×",
              lambda r: f"LiteLLM {r['proxy_peers']['throughput']['litellm']['requests_per_second']:,.0f} requests/s",
              0),
        least("relayed streaming tokens/s to vllm-router's", 0.5,
              lambda r: r["proxy_peers"]["ratios"]["flood_over_vllm-router"], " ×",
              lambda r: f"{r['proxy_peers']['flood']['flexinfer-proxy']['tokens_per_second']:,.0f} tokens/s, "
              f"vllm-router {r['proxy_peers']['flood']['vllm-router']['tokens_per_second']:,.0f}"),
        least("relayed streaming tokens/s to LiteLLM's", 50,
              lambda r: r["proxy_peers"]["ratios"]["flood_over_litellm"], " ×", "", 0),
        Row("2,000 idle streams", "no error",
            lambda r: f"{r['proxy_peers']['idle']['flexinfer-proxy']['errors']} errors, "
            f"{r['proxy_peers']['idle']['flexinfer-proxy']['kib_per_stream']:.0f} KiB per stream",
            lambda r: f"vllm-router {r['proxy_peers']['idle']['vllm-router']['kib_per_stream']:.0f} KiB, "
            f"LiteLLM {r['proxy_peers']['idle']['litellm']['kib_per_stream']:.0f} KiB and "
            f"{r['proxy_peers']['idle']['litellm']['errors']} errors",
            lambda r: r["proxy_peers"]["idle"]["flexinfer-proxy"]["errors"] == 0),
        most("a killed cluster is left, worst", 5, lambda r: r["proxy_failover"]["kill"]["down_after_seconds"]["worst"],
             " s", lambda r: f"{r['proxy_failover']['kill']['lost']['worst']} requests lost"),
        most("a frozen cluster is left, worst", 5,
             lambda r: r["proxy_failover"]["freeze"]["down_after_seconds"]["worst"], " s",
             lambda r: f"{r['proxy_failover']['freeze']['lost']['worst']} requests lost"),
    ),
    {
        "proxy_peers": "python benchmarks/proxy.py --rounds 5 --vllm-router PROGRAM --litellm PROGRAM --output FILE",
        "proxy_failover": "python benchmarks/proxy_failover.py --output FILE",
    },
)  # fmt: skip

MANAGER = Section(
    "Manager",
    (
        most("own writes per model from creation to Running", 14, lambda r: r["manager_models"]["writes_per_model"],
             "", lambda r: f"{r['manager_models']['models']:,} models at once", 1),
        Row("writes in steady state", "none",
            lambda r: f"{sum(r['manager_models']['steady_state']['writes'].values())} in "
            f"{r['manager_models']['steady_state']['seconds']:.0f} s", "",
            lambda r: not r["manager_models"]["steady_state"]["writes"]),
        least("models/s to a script that makes the same writes", 0.8,
              lambda r: r["manager_models"]["manager_to_script"], " ×", lambda r:
              f"{r['manager_models']['models_per_second']['manager']} per second, the script "
              f"{r['manager_models']['models_per_second']['script']}"),
        most("memory at 1,000 models", 300, lambda r: r["manager_models"]["memory_mb"]["most"], " MB", "", 0),
        most("wake from zero, demand to scaled Deployment", 250, lambda r: r["manager_models"]["wake_ms"]["median"],
             " ms", lambda r: f"longest {r['manager_models']['wake_ms']['most']:.0f} ms", 0),
        most("work per event, 1,000 models to 10, worst kind", 1.5,
             lambda r: max(row["ratio"] for row in r["manager_models"]["event_cost_us"].values()), " ×"),
        most("control plane with 100 endpoints, idle: processor", 0.5,
             lambda r: r["control_plane_idle"]["total"]["cores"], " cores"),
        most("control plane with 100 endpoints, idle: memory", 800,
             lambda r: r["control_plane_idle"]["total"]["proportional_mb"], " MB", "", 0),
    ),
    {
        "manager_models": "python -m benchmarks manager_models",
        "control_plane_idle": "python benchmarks/control_plane_idle.py --output FILE",
    },
)  # fmt: skip


def _percent(name: str, at_once: str) -> Make:
    return lambda r: abs(r["benchmarker_peers"]["by_concurrency"][at_once][name])


REST = Section(
    "Benchmark, agent, replay, dashboard",
    (
        most("within 3 % of llama.cpp's own account, 1 at once", 3, _percent("flexinfer_vs_engine_percent", "1"), " %",
             lambda r: f"aiperf {_percent('aiperf_vs_engine_percent', '1')(r):.1f} %", 1),
        most("within 3 % of llama.cpp's own account, 4 at once", 3, _percent("flexinfer_vs_engine_percent", "4"), " %",
             lambda r: f"aiperf {_percent('aiperf_vs_engine_percent', '4')(r):.1f} %", 1),
        most("within 3 % of aiperf, 1 at once", 3, _percent("flexinfer_vs_aiperf_percent", "1"), " %", "", 1),
        most("within 3 % of aiperf, 4 at once", 3, _percent("flexinfer_vs_aiperf_percent", "4"), " %", "", 1),
        most("agent, worst of three machines: processor", 1,
             lambda r: max(row["cpu_percent"] for row in r["agent_footprint"]["machines"].values()), " % of a core"),
        most("agent: memory", 110,
             lambda r: max(row["resident_mb"] for row in r["agent_footprint"]["machines"].values()), " MB", "", 0),
        least("replay through the fleet reducer, 5,000 nodes", 50_000,
              lambda r: r["replay"]["folds_per_second"]["median"], " events/s",
              lambda r: f"slowest run {r['replay']['folds_per_second']['least']:,}", 0),
        most("dashboard, 1,000 events/s and 20 viewers: late, p99", 1000, lambda r: r["dashboard"]["late_ms"]["p99"],
             " ms", "", 0),
        most("dashboard: processor", 0.25, lambda r: r["dashboard"]["server_cores"]["measured"], " cores"),
    ),
    {
        "benchmarker_peers": "python benchmarks/benchmarker_peers.py --aiperf PROGRAM --output FILE",
        "agent_footprint": "python -m benchmarks agent_footprint", "replay": "python -m benchmarks replay",
        "dashboard": "python -m benchmarks dashboard",
    },
)  # fmt: skip

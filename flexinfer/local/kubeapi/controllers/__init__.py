"""The few control loops that make the store behave like a cluster."""

from flexinfer.local.kubeapi.controllers.loop import Controllers

__all__ = ["Controllers"]

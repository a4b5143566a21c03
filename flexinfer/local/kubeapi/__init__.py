"""Embedded Kubernetes API: one generic resource store behind the HTTP surface that clients and kubectl use."""

from flexinfer.local.kubeapi.server import EmbeddedApi

__all__ = ["EmbeddedApi"]

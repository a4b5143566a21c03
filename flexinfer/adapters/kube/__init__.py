"""Kubernetes API behind ports.KubeApi: client, informer, leases, events."""

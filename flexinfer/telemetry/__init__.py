"""Metrics and logs of our own processes."""

"""Copying weights from where they are published into the cache of a node."""

"""Frozen settings per executable: from flags, then environment, then defaults; each field says unit and reason."""

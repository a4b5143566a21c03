"""Definitions of the built-in kinds; see README.md."""

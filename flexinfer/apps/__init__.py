"""Composition roots: each executable chooses its adapters and hands them to the runtime."""

"""The dashboard: one page, live over server-sent events, read-only."""

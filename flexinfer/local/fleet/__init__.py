"""Virtual nodes: declared hardware and speeds, real events, engines throttled to what was declared."""

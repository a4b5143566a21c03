"""HTTP out to inference engines: OpenAI-compatible requests, health, engine metrics."""

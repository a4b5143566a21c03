"""Event bus behind ports.Bus: NATS JetStream and an in-memory twin."""

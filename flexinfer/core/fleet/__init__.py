"""The fleet view: nodes, freshness of facts, reservations."""

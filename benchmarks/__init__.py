"""One script per promise about speed; ``python -m benchmarks`` runs those that need no peer."""

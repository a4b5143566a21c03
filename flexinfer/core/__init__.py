"""Pure decisions: no I/O, clock, randomness or logging."""

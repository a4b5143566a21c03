"""One-machine mode: the parts a cluster would bring, embedded, so that the rest runs unchanged."""

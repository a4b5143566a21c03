"""Getting weights into a cache that the pods of a node share: what to get, where it lies, what can go wrong."""

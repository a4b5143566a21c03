"""How facts reach reducers and effects reach the world: pump, supervised tasks, timers, readiness."""

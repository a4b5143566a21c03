"""Public aids for users' tests: tapes, replay, fakes that pass the behaviour suites of the real thing."""

"""Virtual nodes: a declaration, what it says at each moment, and the real agent over it. Public: testing.fleet."""

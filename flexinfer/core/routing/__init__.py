"""Which endpoint answers a request, and what wakes a sleeping model."""

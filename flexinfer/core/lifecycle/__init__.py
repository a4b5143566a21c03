"""How a model object becomes a running engine: phases, conditions, plan, manifests."""

"""The node agent's loops: probe, tell the bus, project onto the Node, watch the pods of the node."""

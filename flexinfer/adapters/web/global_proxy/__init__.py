"""One URL over several clusters: each request goes to a cluster that has its model, by the chosen strategy."""

"""HTTP in: extender, proxies, ops endpoints, served by one uvicorn wrapper."""

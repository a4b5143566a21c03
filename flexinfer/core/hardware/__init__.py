"""Tool output to facts: parsing, the representative device, int4, device class."""

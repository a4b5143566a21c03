"""FlexInfer: LLM serving on mixed GPUs, placed by measured speed, driven by events."""

__version__ = "0.1.0"

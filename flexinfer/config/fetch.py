"""Settings of ``flexinfer-fetch``; the manager passes them to the init containers of model pods."""

from pathlib import Path
from typing import Literal

from flexinfer.config.common import Settings, setting


class FetchSettings(Settings):
    """Copy a model into the cache of this node, or see that it is where the spec says."""

    source: str = setting("", "hf://…, ollama://…, oci://…, or an absolute path to look at", positional=True)
    form: Literal["folder", "gguf", "store"] = setting(
        "folder", "what the engine loads: a checkpoint, one GGUF file, or ollama's own store"
    )
    model_cache: Path = setting(Path("/models"), "the cache's directory", env="MODEL_CACHE_PATH")
    floor_gb: float = setting(2.0, "GB of its file system that stay free", ge=0)
    secret_dir: Path | None = setting(None, "where the Secret with credentials is mounted")
    secret_name: str = setting("", "its name, for messages")
    hub: str = setting("https://huggingface.co", "URL of the hub, or of a mirror", env="HF_ENDPOINT")
    ollama_registry: str = setting("https://registry.ollama.ai", "URL of ollama's registry, or of a mirror")
    attempts: int = setting(6, "tries without progress before the fetch ends", ge=1)
    termination_log: Path = setting(Path("/dev/termination-log"), "where the reason of a failure goes")

"""Any image that speaks the OpenAI API: the user brings image and arguments, we tell it the model and the port."""

from flexinfer.core.lifecycle.engines.base import Engine, Launch, Program, env


def _launch(launch: Launch) -> Program:
    source = launch.description.source
    return Program(
        launch.description.args,
        env=(
            env("MODEL_SOURCE", source.text),
            env("MODEL_PATH", launch.model_path or launch.cache_path),
            env("HOST", launch.host),
            env("PORT", str(launch.port)),
        ),
    )


CUSTOM = Engine(
    name="custom",
    port=8000,
    images={},
    schemes=frozenset({"ollama", "hf", "file", "pvc", "oci"}),
    launch=_launch,
    served_model=lambda _description: "",  # unknown: the name goes through as the client sent it
    health="",
    own_flags=(),
)

"""From an object as it is in the API to a Description, or the problem that keeps it from working."""

from dataclasses import replace
from typing import Any

from pydantic import BaseModel, ValidationError

from flexinfer.contracts.crds.model import MODEL_IGNORED, Model, ModelSpec
from flexinfer.contracts.crds.modeldeployment import MODELDEPLOYMENT_IGNORED, ModelDeployment, ModelDeploymentSpec
from flexinfer.contracts.crds.parts import Benchmark, Gpu, LiteLlm
from flexinfer.contracts.events import BenchSettings
from flexinfer.contracts.kubernetes import MODELS, Object
from flexinfer.contracts.labels import GPU_RESOURCE_VENDOR
from flexinfer.core.fleet.identity import workload_id
from flexinfer.core.lifecycle.adapters import ADAPTERS, adapters_of
from flexinfer.core.lifecycle.description import (
    Demand,
    Description,
    Measure,
    ModelKey,
    Problem,
    Scale,
    ServiceWish,
    Storage,
)
from flexinfer.core.lifecycle.engines import ENGINES, Engine, engine_named
from flexinfer.core.lifecycle.engines.base import flag_names, flags
from flexinfer.core.lifecycle.sources import BadSource, Source, parse_source
from flexinfer.core.lifecycle.vram import estimate_mb, guess_format

ALIASES = "flexinfer.ai/aliases"
BALANCING = "flexinfer.ai/balancing"


def key_of(obj: Object) -> ModelKey:
    """The key of a Model or ModelDeployment object."""
    meta = obj["metadata"]
    return ModelKey(obj.get("kind", ""), meta.get("namespace", ""), meta["name"])


def describe(obj: Object) -> Description | Problem:
    """What the object asks for. Never raises for what a user can write."""
    cls = Model if obj.get("kind") == MODELS.kind else ModelDeployment
    try:
        parsed = cls.model_validate({"spec": obj.get("spec") or {}})
    except ValidationError as err:
        return _invalid(err)
    spec = parsed.spec
    engine = engine_named(spec.backend)
    if engine is None:
        known = ", ".join(ENGINES)
        return Problem("UnknownBackend", "spec.backend", f"{spec.backend!r} is not supported; use one of {known}")
    if isinstance(spec, ModelSpec):
        return _model(obj, spec, engine)
    return _modeldeployment(obj, spec, engine)


def _invalid(err: ValidationError) -> Problem:
    first = err.errors()[0]
    path = ".".join(str(part) for part in first["loc"])
    message = first["msg"].removeprefix("Value error, ")
    message = "is required" if first["type"] == "missing" else message[:1].lower() + message[1:]
    return Problem("InvalidSpec", path, message)


def _modeldeployment(obj: Object, spec: ModelDeploymentSpec, engine: Engine) -> Description | Problem:
    try:
        source = parse_source(spec.model, engine.name)
    except BadSource as err:
        return Problem("InvalidSource", "spec.model", str(err))
    refused = _refuse(engine, source, "spec.model", spec.image)
    if refused:
        return refused
    legacy = {"llamacpp": spec.llamacpp, "vllm": spec.vllm}.get(engine.name) or {}
    adapters = adapters_of(engine, legacy.get(ADAPTERS), f"spec.{engine.name}.{ADAPTERS}")
    if isinstance(adapters, Problem):
        return adapters
    options = {name: value for name, value in legacy.items() if not isinstance(value, dict | list)}
    demand = _demand(spec.gpu, spec.resources.limits | spec.resources.requests, spec.vram_estimate_mb)
    ignored = _unknown(spec, "spec") + _present(spec, MODELDEPLOYMENT_IGNORED)
    return _description(
        obj,
        engine,
        source,
        demand,
        {
            "image": spec.image,
            "source_secret": spec.source_secret or "",
            "scale": Scale(
                spec.replicas,
                min(spec.min_replicas, spec.replicas),
                float(spec.idle_timeout_seconds),
                float(spec.cold_start_timeout_seconds),
            ),
            "measure": _measure(spec.benchmark),
            "service": ServiceWish(
                spec.service.enabled, spec.service.type, spec.service.port, spec.service.annotations
            ),
            "requests": _plain(spec.resources.requests),
            "limits": _plain(spec.resources.limits),
            "node_selector": spec.node_selector,
            "tolerations": tuple(_wire(item) for item in spec.tolerations),
            "args": tuple(spec.args),
            "env": tuple(_wire(item) for item in spec.env),
            "options": options,
            "adapters": adapters,
            "port": spec.port,
            "aliases": _aliases(obj, spec.litellm),
            "ignored": ignored
            + _unused_options(engine, options, f"spec.{engine.name}")
            + _unused_args(engine, spec.args)
            + overridden(engine, options, tuple(spec.args), f"spec.{engine.name}"),
        },
    )


def _model(obj: Object, spec: ModelSpec, engine: Engine) -> Description | Problem:
    try:
        source = parse_source(spec.source, engine.name)
    except BadSource as err:
        return Problem("InvalidSource", "spec.source", str(err))
    refused = _refuse(engine, source, "spec.source", spec.image)
    if refused:
        return refused
    options = dict(spec.config or {})
    args = options.pop("args", [])
    if not isinstance(args, list) or not all(isinstance(arg, str | int | float) for arg in args):
        return Problem("InvalidSpec", "spec.config.args", "must be a list of strings")
    adapters = adapters_of(engine, options.pop(ADAPTERS, None), f"spec.config.{ADAPTERS}")
    if isinstance(adapters, Problem):
        return adapters
    environment = options.pop("env", {})
    if not isinstance(environment, dict):
        return Problem("InvalidSpec", "spec.config.env", "must be a map of names to values")
    demand = _demand(spec.gpu, spec.resources.limits | spec.resources.requests, None)
    serverless = spec.serverless
    ignored = _unknown(spec, "spec") + _present(spec, MODEL_IGNORED)
    return _description(
        obj,
        engine,
        source,
        demand,
        {
            "image": spec.image,
            "source_secret": spec.source_secret or "",
            "scale": Scale(
                serverless.max_replicas,
                serverless.min_replicas if serverless.enabled else serverless.max_replicas,
                serverless.idle_timeout,
                serverless.cold_start_timeout,
            ),
            "measure": _measure(spec.benchmark),
            "storage": _storage(obj, spec, source),
            "requests": _plain(spec.resources.requests),
            "limits": _plain(spec.resources.limits),
            "node_selector": spec.node_selector,
            "tolerations": tuple(_wire(item) for item in spec.tolerations),
            "args": tuple(str(arg) for arg in args),
            "env": tuple({"name": str(name), "value": str(value)} for name, value in environment.items()),
            "options": options,
            "adapters": adapters,
            "aliases": _aliases(obj, spec.litellm),
            "priority": spec.gpu.priority,
            "ignored": ignored
            + _unused_options(engine, options, "spec.config")
            + _unused_args(engine, args)
            + overridden(engine, options, tuple(str(arg) for arg in args), "spec.config"),
        },
    )


def _description(obj: Object, engine: Engine, source: Source, demand: Demand, rest: dict[str, Any]) -> Description:
    options, args = rest.get("options", {}), rest.get("args", ())
    form = demand.quantization or guess_format(source.name)
    context = _number(options.get(engine.context_option)) or _context_of(args)
    streams = _number(options.get(engine.parallel_option)) or 1
    settled = replace(
        demand,
        vram_mb=demand.vram_mb or estimate_mb(source.name, engine.name, form, context, streams),
        vram_estimated=demand.vram_mb is None,
        quantization=form.lower() if form else None,
        context=context,
        streams=streams,
    )
    speed = (*flags(engine.options, options), *args) if engine.name != "ollama" else _ollama_options(options)
    if rest.get("adapters"):
        speed += tuple(f"lora={one.name}:{one.source.text}:{one.scale}" for one in rest["adapters"])
    meta = obj["metadata"]
    return Description(
        key=key_of(obj),
        uid=str(meta.get("uid", "")),
        generation=int(meta.get("generation") or 0),
        backend=engine.name,
        source=source,
        workload=workload_id(source.text, engine.name, speed, settled.quantization),
        demand=settled,
        balancing=str((meta.get("annotations") or {}).get(BALANCING, "measured")),
        **rest,
    )


def _refuse(engine: Engine, source: Source, field: str, image: str | None) -> Problem | None:
    if source.scheme not in engine.schemes:
        usable = ", ".join(f"{scheme}://" for scheme in sorted(engine.schemes))
        return Problem(
            "SourceNotSupported", field, f"{engine.name} cannot load {source.scheme}:// sources; use {usable}"
        )
    if not engine.images and not image:
        return Problem("ImageMissing", "spec.image", f"backend {engine.name} has no default image; name one")
    return None


def _demand(gpu: Gpu, resources: dict[str, str], earlier_vram: int | None) -> Demand:
    """``gpu``, with accelerators that earlier releases wrote under ``resources``."""
    vendor, count = gpu.vendor, gpu.count
    for name, owner in GPU_RESOURCE_VENDOR.items():
        if name in resources and vendor == "auto" and count is None:
            vendor = {"NVIDIA": "nvidia", "AMD": "amd", "INTEL": "intel"}[owner]  # type: ignore[assignment] # a str to mypy
            count = int(resources[name]) if resources[name].isdigit() else 1
    if vendor == "cpu":
        count = 0
    elif vendor != "auto" and count is None:
        count = 1
    return Demand(vendor, count, gpu.arch, gpu.vram_estimate_mb or earlier_vram, quantization=gpu.quantization)


def _measure(spec: Benchmark) -> Measure:
    return Measure(
        spec.enabled,
        BenchSettings(
            warmup_iterations=spec.warmup_iterations,
            iterations=spec.iterations,
            min_duration_seconds=spec.min_duration,
            batch_size=spec.batch_size,
            concurrency=tuple(spec.concurrency),
        ),
        spec.gate_timeout,
    )


def _storage(obj: Object, spec: ModelSpec, source: Source) -> Storage:
    cache = spec.cache
    if cache is None or source.scheme in {"pvc", "file", "oci"}:
        return Storage()
    strategy = cache.strategy or ("SharedPVC" if cache.pvc_name else "None")
    if strategy == "Memory":
        return Storage("memory", size=cache.size)
    if strategy == "None":
        return Storage()
    name = cache.pvc_name or f"{obj['metadata']['name']}-cache"
    return Storage("claim", name, cache.pvc_name is None, cache.size, cache.storage_class)


def _aliases(obj: Object, litellm: LiteLlm | None) -> tuple[str, ...]:
    meta = obj["metadata"]
    written = str((meta.get("annotations") or {}).get(ALIASES, "")).split(",")
    if litellm and litellm.enabled:
        written += [*litellm.aliases, litellm.served_model_name or ""]
    names = (name.strip() for name in written)
    return tuple(dict.fromkeys(name for name in names if name and name != meta["name"]))


def _plain(resources: dict[str, str]) -> dict[str, str]:
    """Without accelerators: those are asked for under gpu and come back from there."""
    return {name: value for name, value in resources.items() if name not in GPU_RESOURCE_VENDOR}


def _wire(part: BaseModel) -> Object:
    return part.model_dump(by_alias=True, exclude_none=True)


def _unknown(spec: BaseModel, path: str) -> tuple[tuple[str, str], ...]:
    """Fields no release of ours knows; they reach us only where the API server keeps them."""
    found = tuple((f"{path}.{name}", "no such field; check the spelling") for name in sorted(spec.model_extra or {}))
    for name, info in type(spec).model_fields.items():
        value = getattr(spec, name)
        if isinstance(value, BaseModel) and name != "litellm":
            found += _unknown(value, f"{path}.{info.alias or name}")
    return found


def _present(spec: BaseModel, table: dict[str, str]) -> tuple[tuple[str, str], ...]:
    written = spec.model_dump(by_alias=True, exclude_none=True, exclude_unset=True)
    found = []
    for path, remedy in table.items():
        value: Any = written
        for part in path.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if value not in (None, ""):
            found.append((f"spec.{path}", remedy))
    return tuple(found)


def _unused_options(engine: Engine, options: dict[str, Any], path: str) -> tuple[tuple[str, str], ...]:
    known = ", ".join(engine.options) or "none"
    return tuple(
        (f"{path}.{name}", f"{engine.name} has no such option here; known: {known}")
        for name in sorted(options)
        if name not in engine.options
    )


def _unused_args(engine: Engine, args: list[Any]) -> tuple[tuple[str, str], ...]:
    if args and not engine.takes_args:
        return (("spec.args", f"{engine.name} takes no arguments; set environment variables under env"),)
    return ()


def overridden(
    engine: Engine, options: dict[str, Any], args: tuple[str, ...], path: str
) -> tuple[tuple[str, str], ...]:
    """Arguments win over options and over what we set ourselves; that is said, not silent."""
    named = flag_names(args)
    lost = [
        (f"{path}.{n}", o.flag) for n, o in engine.options.items() if n in options and o.flag.partition(" ")[0] in named
    ]
    ours = [(f"our own {flag}", flag) for flag in engine.own_flags if flag in named]
    return tuple((what, f"the arguments set {flag.partition(' ')[0]} too, and they win") for what, flag in lost + ours)


def _number(value: object) -> int | None:
    text = str(value)
    return int(text) if text.isdigit() else None


def _context_of(args: tuple[str, ...]) -> int | None:
    """The context length in a command line, as llama.cpp, vLLM and SGLang write it."""
    names = {"-c", "--ctx-size", "--max-model-len", "--context-length", "--max_seq_len", "--max-total-tokens"}
    for index, arg in enumerate(args):
        name, mark, value = arg.partition("=")
        if name in names:
            return _number(value if mark else args[index + 1] if index + 1 < len(args) else "")
    return None


def _ollama_options(options: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{name}={options[name]}" for name in sorted(options))

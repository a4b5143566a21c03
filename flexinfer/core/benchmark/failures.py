"""Why a run gave no result: reason code, remedy, exit code, and whether trying again can help."""

from dataclasses import dataclass

from flexinfer.contracts.events import BenchFailed
from flexinfer.core.benchmark.summary import Subject

EXIT_DONE = 0
EXIT_SETTINGS = 2  # a setting is wrong: the same Job fails again
EXIT_NOT_READY = 3  # the instance never answered: trying later may help
EXIT_ENGINE = 4  # the instance broke while it was measured: trying again may help
EXIT_UNMEASURABLE = 5  # the answers cannot be measured: the same engine fails again
EXIT_REFUSED = 6  # the server said no to this request: it has to be set up differently
EXIT_UNDELIVERED = 7  # a whole result, but neither the bus nor the termination log took it
EXIT_STOPPED = 143  # SIGTERM: nothing was published


@dataclass(frozen=True, slots=True)
class Kind:
    """How a reason is answered."""

    exit_code: int
    remedy: str


_KINDS = {
    "BadSettings": Kind(EXIT_SETTINGS, "Correct the setting named in the message."),
    "NotReady": Kind(
        EXIT_NOT_READY, "Look at the engine's log; raise the ready timeout if the model needs longer to load."
    ),
    "Connection": Kind(
        EXIT_ENGINE, "Look at the engine's log: it closed the connection or ended, often out of memory."
    ),
    "EngineFailed": Kind(EXIT_ENGINE, "Look at the engine's log for the error it reported in its answer."),
    "Http": Kind(EXIT_ENGINE, "Look at the engine's log for the request that failed."),
    "Timeout": Kind(EXIT_ENGINE, "Raise the request timeout or lower the batch size; the engine may hang."),
    "TooSlow": Kind(EXIT_ENGINE, "Lower the batch size or the iterations, or raise the time limit."),
    "Limited": Kind(EXIT_REFUSED, "Raise the rate limit for the benchmark, or measure the engine without the limiter."),
    "WrongModel": Kind(EXIT_REFUSED, "Ask for a model the server lists under /v1/models."),
    "Denied": Kind(EXIT_REFUSED, "Give an API key that may use this model."),
    "Refused": Kind(EXIT_REFUSED, "The server does not take this request; the message says why."),
    "ContextTooLong": Kind(EXIT_REFUSED, "Lower prompt tokens and batch size, or give the engine a longer context."),
    "Tls": Kind(EXIT_REFUSED, "Give the CA that signed the server's certificate, or correct the host name."),
    "MalformedStream": Kind(EXIT_UNMEASURABLE, "Use an engine or proxy that streams OpenAI completion chunks."),
    "NoUsage": Kind(EXIT_UNMEASURABLE, "Use an engine that honours stream_options.include_usage."),
    "NoTokens": Kind(EXIT_UNMEASURABLE, "Look at the engine's log: it ends answers at once; check the chat template."),
    "CountMismatch": Kind(EXIT_UNMEASURABLE, "The engine counts its tokens wrongly; use another release of it."),
    "WrongDeviceClass": Kind(
        EXIT_REFUSED, "Measure again: the node's hardware is not what this measurement was planned for."
    ),
    "InstanceChanged": Kind(EXIT_UNMEASURABLE, "Point the benchmark at one instance only."),
}

_OTHER = Kind(EXIT_ENGINE, "Look at the engine's log.")


def kind_of(reason: str) -> Kind:
    """Exit code and remedy of a reason code."""
    return _KINDS.get(reason, _OTHER)


def reasons() -> dict[str, Kind]:
    """Every reason code with its answer, for documentation."""
    return dict(_KINDS)


def failed(subject: Subject, reason: str, message: str) -> BenchFailed:
    """The event that closes a run without a result."""
    return BenchFailed(
        key=subject.key or "unset",
        namespace=subject.namespace or "unset",
        model=subject.model or "unset",
        reason=reason,
        message=message,
        remedy=kind_of(reason).remedy,
        device_class=subject.device_class or None,
        node=subject.node,
    )

"""An engine that serves slower than it was measured, or does no longer."""

from flexinfer.contracts.payload import Amount, Name, Payload


class BenchDrifted(Payload, frozen=True, kw_only=True):
    """Type ``ai.flexinfer.bench.drifted.v1``: ``drifted`` false says that a drift told of before is over.

    ``tokens_per_second`` is what the engine gives, ``expected_tokens_per_second`` what the result of ``key`` says for
    the same number of requests at once; both are averages.
    """

    key: Name
    namespace: Name
    model: Name
    pod: Name
    node: Name
    device_class: Name
    drifted: bool
    ratio: Amount
    tokens_per_second: Amount
    expected_tokens_per_second: Amount

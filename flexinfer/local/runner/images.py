"""Which local program stands for a container image. Nothing is pulled."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LocalImage:
    """What an image is on this machine.

    ``entrypoint``: argv before the container's args, replaced by ``command``. ``env``: the image's own variables.
    ``programs``: names by which a ``command`` may call programs of the image, each with its argv here.
    """

    entrypoint: tuple[str, ...]
    env: Mapping[str, str] = field(default_factory=dict)
    programs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


Images = Mapping[str, LocalImage | Sequence[str]]


def repository(reference: str) -> str:
    """An image reference without registry defaults, tag and digest.

    >>> repository("docker.io/ollama/ollama:rocm"), repository("localhost:5000/a@sha256:0"), repository("ubuntu")
    ('ollama/ollama', 'localhost:5000/a', 'ubuntu')
    """
    name = reference.partition("@")[0]
    folder, slash, last = name.rpartition("/")
    name = f"{folder}{slash}{last.partition(':')[0]}"
    return name.removeprefix("docker.io/").removeprefix("library/")


class ImageTable:
    """Looks a reference up as written, then by repository alone."""

    def __init__(self, images: Images) -> None:
        self._exact = {name: _image(entry) for name, entry in images.items()}
        self._by_repository = {repository(name): image for name, image in self._exact.items()}

    def find(self, reference: str) -> LocalImage | None:
        """The local program, None for an image this machine does not stand in for."""
        return self._exact.get(reference) or self._by_repository.get(repository(reference))

    def missing(self, reference: str) -> str:
        """The message of the waiting state ErrImageNeverPull."""
        known = ", ".join(sorted(self._exact)) or "none"
        return f'no local program stands for image "{reference}"; known images: {known}'


def _image(entry: LocalImage | Sequence[str]) -> LocalImage:
    return entry if isinstance(entry, LocalImage) else LocalImage(tuple(entry))

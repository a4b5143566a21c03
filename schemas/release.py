"""Keep the schemas of a release: ``python schemas/release.py``, part of making one. Kept ones are never changed."""  # noqa: INP001 - a script

from pathlib import Path

from flexinfer import __version__
from flexinfer.contracts.schemas import files

FOLDER = Path(__file__).parent / "released" / __version__


def main() -> None:
    """Write each event's schema once."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, text in files().items():
        if name.endswith(".json") and not (FOLDER / name).exists():
            (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()

"""Write the schemas next to this file: ``python schemas/generate.py``. A test fails when one of them is stale."""  # noqa: INP001 - a script

from pathlib import Path

from flexinfer.contracts.schemas import files

FOLDER = Path(__file__).parent


def main() -> None:
    """Write what is new, remove what no event has any more."""
    made = files()
    for path in FOLDER.iterdir():
        if path.suffix in (".json", ".yaml") and path.name not in made:
            path.unlink()
    for name, text in made.items():
        (FOLDER / name).write_text(text)


if __name__ == "__main__":
    main()

"""The scripts of benchmarks/ import each other as neighbours; last on the path, so that they hide nothing."""

import sys
from pathlib import Path

FOLDER = str(Path(__file__).parents[3] / "benchmarks")
if FOLDER not in sys.path:
    sys.path.append(FOLDER)

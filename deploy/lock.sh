#!/usr/bin/env bash
# Write deploy/locks again: every package of the images with its hashes. Needs uv (pip install uv).
set -euo pipefail
cd "$(dirname "$0")/.."
lock() {
  local to="deploy/locks/$1.txt"
  shift
  echo "# Made by deploy/lock.sh: what the images are built from, for Linux on amd64 and arm64." >"$to"
  uv pip compile --quiet --generate-hashes --universal --python-version 3.13 --no-emit-index-url --no-annotate \
    --no-header "$@" >>"$to"
}
lock build - <<<'setuptools>=77'
lock flexinfer pyproject.toml
lock agent --extra nvidia --extra amd pyproject.toml

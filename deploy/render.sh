#!/usr/bin/env bash
# Write deploy/flexinfer.yaml again: the chart as plain manifests. Needs helm. A test fails when the file is stale.
set -euo pipefail
cd "$(dirname "$0")/.."
# The version of kube-scheduler follows this one; keep it at that of your cluster.
KUBE_VERSION="${KUBE_VERSION:-1.36.3}"
{
  echo "# The chart as plain manifests, rendered by deploy/render.sh for Kubernetes $KUBE_VERSION."
  echo "# deploy/secrets.sh, then: kubectl apply --server-side -f deploy/crds -f deploy/flexinfer.yaml"
  helm template flexinfer charts/flexinfer -n flexinfer-system --kube-version "$KUBE_VERSION" \
    -f deploy/plain-values.yaml
} >"${1:-deploy/flexinfer.yaml}"

#!/usr/bin/env bash
# Give the workers of mixed-gpus.yaml the devices of fleet.yaml, and start pretend.py, which speaks for them on the bus.
set -euo pipefail
cd "$(dirname "$0")"

device() {
  kubectl patch node "$1" --subresource=status --type=merge \
    -p "{\"status\":{\"capacity\":{\"$2\":\"1\"},\"allocatable\":{\"$2\":\"1\"}}}"
}

device flexinfer-worker nvidia.com/gpu
device flexinfer-worker2 amd.com/gpu
device flexinfer-worker3 gpu.intel.com/xe
kubectl annotate --overwrite node flexinfer-worker flexinfer.ai/cost=0.40
kubectl annotate --overwrite node flexinfer-worker2 flexinfer.ai/cost=0.30
kubectl annotate --overwrite node flexinfer-worker3 flexinfer.ai/cost=0.15
kubectl -n flexinfer-system create configmap flexinfer-pretend --from-file=pretend.py --from-file=fleet.yaml \
  --dry-run=client -o yaml | kubectl apply -f -
kubectl apply -f pretend.yaml

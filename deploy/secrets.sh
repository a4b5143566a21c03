#!/usr/bin/env bash
# The Secrets that deploy/flexinfer.yaml expects: a password per user of the bus, the key of its auth callout, and a
# certificate of its server.
# What is there already is kept. Needs kubectl and openssl.
set -euo pipefail
NAMESPACE="${1:-flexinfer-system}"
DAYS="${DAYS:-3650}"
HOST="flexinfer-nats.$NAMESPACE"
PEERS="*.flexinfer-nats-headless.$NAMESPACE"

# The label by which flexinfer status and the like find the bus.
mark() { kubectl -n "$NAMESPACE" label --overwrite "$1" app.kubernetes.io/component=nats >/dev/null; }
have() { kubectl -n "$NAMESPACE" get secret "$1" >/dev/null 2>&1; }

kubectl get namespace "$NAMESPACE" >/dev/null 2>&1 || kubectl create namespace "$NAMESPACE"

for user in dashboard global-proxy manager proxy scheduler viewer; do
  if ! have "flexinfer-nats-$user"; then
    # It begins with a letter: nats-server reads the value of a variable as it reads its configuration.
    password="p$(openssl rand -hex 16)"
    kubectl -n "$NAMESPACE" create secret generic "flexinfer-nats-$user" \
      --from-literal="credentials=$user:$password" --from-literal="password=$password"
    mark "secret/flexinfer-nats-$user"
  fi
done

if ! have flexinfer-nats-callout; then
  kubectl -n "$NAMESPACE" create secret generic flexinfer-nats-callout --from-literal="seed=$(openssl rand -base64 32)"
  mark secret/flexinfer-nats-callout
fi

if ! have flexinfer-nats-tls; then
  folder="$(mktemp -d)"
  trap 'rm -rf "$folder"' EXIT
  openssl req -x509 -newkey rsa:2048 -nodes -days "$DAYS" -subj "/CN=flexinfer-nats-ca" \
    -addext "basicConstraints=critical,CA:TRUE" -addext "keyUsage=critical,keyCertSign,cRLSign" \
    -keyout "$folder/ca.key" -out "$folder/ca.crt" 2>/dev/null
  openssl req -newkey rsa:2048 -nodes -subj "/CN=$HOST" -keyout "$folder/tls.key" -out "$folder/tls.csr" 2>/dev/null
  names="DNS:flexinfer-nats,DNS:$HOST,DNS:$HOST.svc,DNS:$HOST.svc.cluster.local,DNS:$PEERS,DNS:$PEERS.svc"
  printf 'subjectAltName=%s,DNS:localhost,IP:127.0.0.1\nextendedKeyUsage=serverAuth,clientAuth\n' "$names" >"$folder/ext"
  openssl x509 -req -in "$folder/tls.csr" -CA "$folder/ca.crt" -CAkey "$folder/ca.key" -CAcreateserial \
    -days "$DAYS" -extfile "$folder/ext" -out "$folder/tls.crt" 2>/dev/null
  kubectl -n "$NAMESPACE" create secret generic flexinfer-nats-tls --type=kubernetes.io/tls \
    --from-file="ca.crt=$folder/ca.crt" --from-file="tls.crt=$folder/tls.crt" --from-file="tls.key=$folder/tls.key"
  kubectl -n "$NAMESPACE" create configmap flexinfer-nats-ca --from-file="ca.crt=$folder/ca.crt"
  mark configmap/flexinfer-nats-ca
fi

# syntax=docker/dockerfile:1
# Two images for linux/amd64 and linux/arm64:
#   docker buildx build --platform linux/amd64,linux/arm64 -t flexinfer/flexinfer:0.1.0 .
#   docker buildx build --platform linux/amd64,linux/arm64 --target agent -t flexinfer/agent:0.1.0 .
# Python, and every package by its hash (deploy/locks, written by deploy/lock.sh), are what goes into them.
ARG PYTHON=3.13

FROM python:${PYTHON}-slim AS wheel
WORKDIR /src
COPY deploy/locks/build.txt deploy/locks/build.txt
RUN pip install --no-cache-dir --require-hashes -r deploy/locks/build.txt
COPY pyproject.toml README.md LICENSE ./
COPY flexinfer flexinfer
RUN pip wheel --no-cache-dir --no-deps --no-build-isolation --wheel-dir /wheel .

# The environments have no pip of their own: nothing is installed later.
FROM python:${PYTHON}-slim AS packages
COPY deploy/locks/flexinfer.txt /locks/flexinfer.txt
RUN python -m venv --without-pip /opt/flexinfer \
 && pip --python /opt/flexinfer/bin/python install --no-cache-dir --require-hashes -r /locks/flexinfer.txt
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/flexinfer/bin/python install --no-cache-dir --no-deps --no-index /wheel/*.whl

FROM python:${PYTHON}-slim AS agent-packages
COPY deploy/locks/agent.txt /locks/agent.txt
RUN python -m venv --without-pip /opt/flexinfer \
 && pip --python /opt/flexinfer/bin/python install --no-cache-dir --require-hashes -r /locks/agent.txt
COPY --from=wheel /wheel /wheel
RUN pip --python /opt/flexinfer/bin/python install --no-cache-dir --no-deps --no-index /wheel/*.whl

FROM python:${PYTHON}-slim AS runtime
LABEL org.opencontainers.image.title="FlexInfer" \
      org.opencontainers.image.licenses="Apache-2.0"
ENV PATH=/opt/flexinfer/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1
# A number, so that runAsNonRoot can be checked without a look into the image.
USER 65532:65532
WORKDIR /tmp
CMD ["flexinfer", "--help"]

# With NVIDIA's and AMD's Python libraries; the drivers' own libraries come from the host.
FROM runtime AS agent
COPY --from=agent-packages /opt/flexinfer /opt/flexinfer
CMD ["flexinfer-agent", "--help"]

FROM runtime AS flexinfer
COPY --from=packages /opt/flexinfer /opt/flexinfer

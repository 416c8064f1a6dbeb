# One image for JobManager, TaskManager, submission and client; docker-compose.yml runs it as each of them.
# Flink and Java come from PyPI like everything else, so what runs here is what runs in a virtual environment.
FROM python:3.11-slim

# What to install: quickstart has Flink, Java, OpenVINO and what the example needs; add tensorflow or torch with a comma.
ARG EXTRAS=quickstart

ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PYTHONUNBUFFERED=1

RUN useradd --create-home --uid 1000 serving \
    && install --directory --owner serving /digits

WORKDIR /opt/cluster-serving
COPY pyproject.toml README.md LICENSE ./
COPY client client
COPY protocol protocol
COPY connectors connectors
COPY job job
COPY launcher launcher
COPY settings settings
COPY frontend frontend
COPY bench bench
COPY flink-conf flink-conf
RUN pip install ".[${EXTRAS}]"
COPY examples examples

USER serving
WORKDIR /home/serving

HEALTHCHECK --interval=10s --timeout=10s --start-period=60s --retries=3 \
    CMD ["python", "-m", "cluster_serving.launcher.container", "health"]

CMD ["cluster-serving-cli", "--help"]

# Two images, built by docker, podman and buildah alike; docs/how-to/deploy/docker.md has their sizes.
#   docker build --target client -t cluster-serving-client .    front end and client; no Flink, no Java
#   docker build --target flink -t cluster-serving-flink .      JobManager, TaskManager and the commands
# Flink and Java come from PyPI like everything else, so what runs here is what runs in a virtual environment.
ARG PYTHON=3.11
ARG BASE=python:${PYTHON}-slim

FROM ${BASE} AS source
# For a package index of your own.
ARG PIP_INDEX_URL
ARG PIP_TRUSTED_HOST
ENV PIP_INDEX_URL=$PIP_INDEX_URL PIP_TRUSTED_HOST=$PIP_TRUSTED_HOST PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 \
    PIP_ROOT_USER_ACTION=ignore
RUN python3 -m venv /opt/sbom \
    && /opt/sbom/bin/pip install --quiet "cyclonedx-bom>=7,<8" \
    && python3 -m venv /opt/venv
WORKDIR /source
COPY pyproject.toml hatch_build.py README.md LICENSE ./

# The dependencies come before the packages: a changed line of ours does not install them again.
FROM source AS client-build
RUN /opt/venv/bin/pip install --quiet ".[http,traces]"
COPY . .
RUN sh image/finish.sh

FROM source AS flink-build
# The engines; quickstart also has what the example needs. Further ones with commas: server,embedded,openvino,torch
ARG EXTRAS=server,embedded,openvino
RUN /opt/venv/bin/pip install --quiet ".[${EXTRAS}]"
# Texts of skl2onnx need this locale, by either name. A base without apt makes an image without it.
RUN mkdir -p /usr/lib/locale; \
    { apt-get -qq update && apt-get -qq install --no-install-recommends locales >/dev/null \
    && localedef --no-archive -i en_US -f UTF-8 en_US.UTF-8 && ln -s en_US.utf8 /usr/lib/locale/en_US; } \
    || echo "The image has no locale en_US.UTF-8"
COPY . .
RUN sh image/finish.sh

FROM ${BASE} AS runtime
RUN useradd --create-home --uid 1000 serving
ENV PATH=/opt/venv/bin:$PATH LANG=C.UTF-8 PYTHONUNBUFFERED=1
WORKDIR /home/serving
COPY image/entrypoint.sh /docker-entrypoint.sh
ENTRYPOINT ["/docker-entrypoint.sh"]

FROM runtime AS client
COPY --from=client-build /opt/venv /opt/venv
USER 1000
CMD ["cluster-serving-http", "--interface=0.0.0.0"]

FROM runtime AS flink
ARG PYTHON
ARG PACKAGES=/opt/venv/lib/python${PYTHON}/site-packages
COPY --from=flink-build /opt/venv /opt/venv
COPY --from=flink-build /usr/lib/locale /usr/lib/locale
# The folders that volumes of the example cover belong to the user.
RUN install --directory --owner=serving /opt/flink /digits
USER 1000
# Where Flink's own Kubernetes mode and the Flink Kubernetes Operator look for Flink.
RUN python -m cluster_serving.launcher.container install
# The Python that Flink embeds knows no virtual environment: a PYTHONPATH names the packages.
ENV FLINK_HOME=/opt/flink JAVA_HOME=/opt/flink/java PATH=/opt/flink/bin:$PATH \
    PYTHONPATH=$PACKAGES/cluster_serving/job/embedded_python:$PACKAGES
CMD ["cluster-serving-cli", "--help"]

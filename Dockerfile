# The operator. Build from the root: docker build -t lbg-operator .
ARG BASE=python:3.11-slim-bookworm

FROM ${BASE} AS build
ARG UV_VERSION=0.13.8
RUN pip install --no-cache-dir "uv==${UV_VERSION}"
# UV_PYTHON_DOWNLOADS: the interpreter must be the one that the final stage also has, at the same path.
ENV UV_PROJECT_ENVIRONMENT=/opt/lbg UV_COMPILE_BYTECODE=1 UV_LINK_MODE=copy UV_PYTHON_DOWNLOADS=never
WORKDIR /src
# Dependencies before sources: a change of code rebuilds only the last layer.
COPY pyproject.toml uv.lock README.md LICENSE ./
RUN uv sync --frozen --no-dev --no-install-project --extra operator --extra rabbitmq
COPY operator operator
COPY consumer-image/lbg_consumer consumer-image/lbg_consumer
# --no-editable builds the wheel and installs it; nothing in the final stage points into /src.
RUN uv sync --frozen --no-dev --no-editable --extra operator --extra rabbitmq

FROM ${BASE}
COPY --from=build /opt/lbg /opt/lbg
ENV PATH=/opt/lbg/bin:$PATH PYTHONUNBUFFERED=1
# A number, so that runAsNonRoot can be verified without looking into the image.
USER 65532:65532
# -m, never a path: kopf puts a file's folder first on sys.path.
ENTRYPOINT ["kopf", "run", "-m", "lbg.controller.handlers"]
CMD ["--all-namespaces", "--liveness=http://0.0.0.0:8080/healthz"]

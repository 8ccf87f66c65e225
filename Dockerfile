# compactd in a container. What builds it stays in the first stage; what runs needs no network but the providers', and no
# writable place but /data.
#
# BASE is pinned to a patch release and raised by a pull request (.github/dependabot.yml). To pin the very bytes, as releases do:
# docker build --build-arg "BASE=$(deploy/pin-base.sh)" .
# EXTRAS adds what is not in every installation: --build-arg EXTRAS=s3,otel
ARG BASE=python:3.13.16-slim-trixie

FROM ${BASE} AS build
ENV PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_ROOT_USER_ACTION=ignore
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends binutils
RUN python3 -m venv /opt/compactd
ENV PATH=/opt/compactd/bin:$PATH
WORKDIR /src
COPY requirements.lock .
RUN pip install --require-hashes -r requirements.lock \
    && find /opt/compactd -name '*.so' -exec strip --strip-unneeded {} +
COPY pyproject.toml README.md LICENSE ./
COPY app app
ARG EXTRAS=
RUN pip install --no-deps --no-build-isolation . \
    && if [ -n "$EXTRAS" ]; then pip install --no-build-isolation ".[$EXTRAS]"; fi \
    && pip uninstall --yes setuptools pip

FROM ${BASE}
RUN groupadd --system --gid 10001 compactd \
    && useradd --system --uid 10001 --gid 10001 --no-create-home --shell /usr/sbin/nologin compactd \
    && install --directory --owner=compactd --group=compactd --mode=0700 /data
COPY --from=build /opt/compactd /opt/compactd
COPY config/compactd.yaml /etc/compactd/compactd.yaml
ENV PATH=/opt/compactd/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    COMPACTD_CONFIG=/etc/compactd/compactd.yaml \
    COMPACTD_LISTEN__HOST=0.0.0.0
USER 10001:10001
# The configuration's own store, sqlite:///data/compactd.db, is in the volume.
WORKDIR /
VOLUME /data
EXPOSE 8787
HEALTHCHECK --interval=10s --timeout=3s --start-period=15s \
    CMD ["python3", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8787/livez', timeout=2)"]
ENTRYPOINT ["compactd"]
CMD ["serve", "--port", "8787"]

"""S3, played by moto."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of a server with one bucket."""
    pytest.importorskip("obstore")
    server_module = pytest.importorskip("moto.server")
    boto3 = pytest.importorskip("boto3")
    server = server_module.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"AWS_ACCESS_KEY_ID": "id", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "us-east-1"}
    url = f"http://{host}:{port}"
    before = {key: os.environ.get(key) for key in (*keys, "AWS_ENDPOINT_URL")}
    os.environ.update(keys, AWS_ENDPOINT_URL=url)
    boto3.client("s3", endpoint_url=url, region_name="us-east-1").create_bucket(Bucket="bucket")
    yield url
    for key, value in before.items():
        os.environ.pop(key, None)
        if value is not None:
            os.environ[key] = value
    server.stop()

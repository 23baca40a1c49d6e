"""A real S3 server, versitygw, whose buckets are folders."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent.parent


class S3:
    """The server, and one bucket at a time. ``env`` has what a client needs."""

    def __init__(self, folder: Path) -> None:
        program = Path(os.environ.get("BIN") or ROOT / ".bin") / "versitygw"
        assert program.exists(), f"{program} is missing: make store-servers builds it"
        with socket.create_server(("127.0.0.1", 0)) as free:
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.endpoint = f"http://{address}"
        self.log = folder / "versitygw.log"
        self.bucket = ""
        self.env = {
            "S3_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": "AKIATESTTESTTESTTEST",
            "AWS_SECRET_ACCESS_KEY": "planted-secret-of-the-s3-server-0123456789",
        }
        data, meta = folder / "data", folder / "meta"
        for part in (data, meta):
            part.mkdir()
        command = [program, "--port", address, "--quiet", "--keep-alive", "posix", "--sidecar", meta, data]
        keys = {
            "ROOT_ACCESS_KEY_ID": self.env["AWS_ACCESS_KEY_ID"],
            "ROOT_SECRET_ACCESS_KEY": self.env["AWS_SECRET_ACCESS_KEY"],
        }
        with open(self.log, "wb") as log:
            self._process = subprocess.Popen(
                [str(word) for word in command], env={**os.environ, **keys}, stdout=log, stderr=log
            )
        self._port = int(address.partition(":")[2])
        self._buckets = 0
        self._client: Any = None

    @property
    def client(self) -> Any:
        """A client of the test's own."""
        if self._client is None:
            import boto3

            self._client = boto3.session.Session().client(
                "s3",
                endpoint_url=self.endpoint,
                region_name="us-east-1",
                aws_access_key_id=self.env["AWS_ACCESS_KEY_ID"],
                aws_secret_access_key=self.env["AWS_SECRET_ACCESS_KEY"],
            )
        return self._client

    def answers(self) -> bool:
        """Whether it takes connections."""
        assert self._process.poll() is None, self.log.read_text()
        try:
            socket.create_connection(("127.0.0.1", self._port), timeout=1).close()
        except OSError:
            return False
        return True

    def close(self) -> None:
        """End the server."""
        self._process.kill()
        self._process.wait(10)

    def new_bucket(self) -> None:
        """Use another bucket from now on, which is empty."""
        self._buckets += 1
        self.bucket = f"bucket-{self._buckets}"
        self.client.create_bucket(Bucket=self.bucket)

    def uri(self, key: str) -> str:
        """The URI of an object."""
        return f"s3://{self.bucket}/{key}"

    def put(self, key: str, content: bytes) -> str:
        """Write an object, and return its URI."""
        self.client.put_object(Bucket=self.bucket, Key=key, Body=content)
        return self.uri(key)

    def get(self, key: str) -> bytes:
        """The content of an object."""
        return bytes(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())

    def keys(self) -> list[str]:
        """All objects."""
        return [entry["Key"] for entry in self.client.list_objects_v2(Bucket=self.bucket).get("Contents", [])]

    def unfinished(self) -> list[str]:
        """The objects of multipart uploads that were begun and not ended."""
        return [entry["Key"] for entry in self.client.list_multipart_uploads(Bucket=self.bucket).get("Uploads") or []]

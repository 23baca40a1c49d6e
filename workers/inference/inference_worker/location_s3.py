"""Objects of an S3 store, by boto3. Credentials, region and endpoint are the usual variables AWS_*."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from typing import Any

from inference_worker.access import Uri
from inference_worker.errors import LocationError
from inference_worker.locations import Sink, Source

CHUNK_BYTES = 8 << 20
# A part is larger by this with each thousand: 10,000 parts, which is the most, have 440 GiB.
PART_BYTES = 8 << 20
PARTS_OF_ONE_SIZE = 1000
TRIES = 3
CONNECT_SECONDS = 10
READ_SECONDS = 30
CREDENTIALS = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN")
_lock = threading.Lock()


class S3Location:
    """One object."""

    def __init__(self, uri: Uri) -> None:
        self.name = uri.text
        self._place = {"Bucket": uri.host, "Key": uri.path}

    def open(self) -> Source:
        """Open it as it is now: when it changes meanwhile, reading raises LocationError, and another try can help."""
        s3 = _client()
        with _translated(self.name, "read"):
            head = s3.get_object(**self._place)  # unlike HEAD, it says why it cannot be had
            head["Body"].close()
        size, version = int(head["ContentLength"]), str(head["ETag"])
        return Source(_Ranges(self.name, s3, {**self._place, "IfMatch": version}, size), size, version)

    def create(self) -> Sink:
        """A multipart upload, which begins with its first part."""
        return _Upload(self.name, _client(), self._place)


class _Ranges:
    """Reads an object in ranges, each in a request of its own: a reader may be slow without losing a connection."""

    def __init__(self, name: str, s3: Any, place: dict[str, str], size: int) -> None:
        self._name = name
        self._s3 = s3
        self._place = place
        self._size = size
        self._next = 0
        self._chunk = memoryview(b"")

    def read(self, size: int, /) -> bytes:
        if not self._chunk and self._next < self._size:
            self._chunk = memoryview(self._fetch())
            self._next += len(self._chunk)
        data, self._chunk = bytes(self._chunk[:size]), self._chunk[size:]
        return data

    def close(self) -> None:
        self._chunk = memoryview(b"")

    def _fetch(self) -> bytes:
        """The next range. boto3 repeats requests, but not the reading of an answer that breaks off."""
        last = min(self._size, self._next + CHUNK_BYTES) - 1
        for left in reversed(range(TRIES)):
            try:
                with _translated(self._name, "read"):
                    answer = self._s3.get_object(**self._place, Range=f"bytes={self._next}-{last}")
                    with contextlib.closing(answer["Body"]) as body:
                        data = body.read()
                if len(data) == last + 1 - self._next:
                    return data
                raise LocationError(f"{self._name} has given {len(data)} bytes of a longer range", retryable=True)
            except LocationError as error:
                if not error.retryable or not left:
                    raise
        raise AssertionError


class _Upload:
    """Writes an object in parts."""

    def __init__(self, name: str, s3: Any, place: dict[str, str]) -> None:
        self._name = name
        self._s3 = s3
        self._place = place
        self._pending = bytearray()
        self._parts: list[dict[str, Any]] = []
        self._upload = ""

    def write(self, data: bytes, /) -> None:
        self._pending += data
        while len(self._pending) >= (size := PART_BYTES * (1 + len(self._parts) // PARTS_OF_ONE_SIZE)):
            self._send(bytes(memoryview(self._pending)[:size]))
            del self._pending[:size]

    def commit(self) -> None:
        with _translated(self._name, "written"):
            if not self._upload:
                self._s3.put_object(**self._place, Body=bytes(self._pending))
                return
        if self._pending:
            self._send(bytes(self._pending))
        with _translated(self._name, "written"):
            self._s3.complete_multipart_upload(
                **self._place, UploadId=self._upload, MultipartUpload={"Parts": self._parts}
            )
        self._upload = ""

    def abort(self) -> None:
        if self._upload:
            with contextlib.suppress(LocationError), _translated(self._name, "written"):
                self._s3.abort_multipart_upload(**self._place, UploadId=self._upload)
        self._upload = ""
        self._pending.clear()

    def _send(self, part: bytes) -> None:
        with _translated(self._name, "written"):
            if not self._upload:
                self._upload = self._s3.create_multipart_upload(**self._place)["UploadId"]
            number = len(self._parts) + 1
            answer = self._s3.upload_part(**self._place, UploadId=self._upload, PartNumber=number, Body=part)
        self._parts.append({"PartNumber": number, "ETag": answer["ETag"]})


def _client() -> Any:
    """The client of the process, which several threads may use; another one when the variables have changed."""
    endpoint = os.environ.get("S3_ENDPOINT_URL", "").strip() or os.environ.get("AWS_ENDPOINT_URL", "").strip()
    region = os.environ.get("AWS_REGION", "").strip() or os.environ.get("AWS_DEFAULT_REGION", "").strip()
    with _lock:
        return _make_client(endpoint, region or "us-east-1", *(os.environ.get(name, "") for name in CREDENTIALS))


@functools.lru_cache(maxsize=1)
def _make_client(endpoint: str, region: str, *_: str) -> Any:
    try:
        import boto3
        from botocore.config import Config
        from botocore.exceptions import BotoCoreError
    except ImportError as error:
        raise LocationError(
            f"s3:// cannot be used: the image lacks boto3 ({error}); use the operator's worker image or install boto3"
        ) from error
    options: dict[str, Any] = {
        "connect_timeout": CONNECT_SECONDS,
        "read_timeout": READ_SECONDS,
        "retries": {"mode": "standard", "total_max_attempts": TRIES},
        "s3": {"addressing_style": "path" if endpoint else "auto"},
    }
    # Newer versions add checksums to every upload by default, which stores other than Amazon's may not know.
    for name in ("request_checksum_calculation", "response_checksum_validation"):
        if name in getattr(Config, "OPTION_DEFAULTS", {}):
            options[name] = "when_required"
    try:
        return boto3.session.Session().client(
            "s3", region_name=region, endpoint_url=endpoint or None, config=Config(**options)
        )
    except (BotoCoreError, ValueError) as error:
        raise LocationError(f"s3:// cannot be used: {error}: correct S3_ENDPOINT_URL and AWS_REGION") from error


@contextlib.contextmanager
def _translated(name: str, done: str) -> Any:
    """Turns what boto3 raises into a LocationError."""
    from botocore import exceptions
    from urllib3.exceptions import HTTPError

    try:
        yield
    except exceptions.ClientError as error:
        raise _refused(name, done, error.response) from error
    except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
        raise LocationError(
            f"{name} cannot be {done}: the worker has no credentials: "
            "give it AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY"
        ) from error
    except exceptions.ParamValidationError as error:
        raise LocationError(f"{name} cannot be {done}: {error}") from error
    except (exceptions.BotoCoreError, HTTPError, OSError) as error:
        raise LocationError(f"{name} cannot be {done} now: {error}", retryable=True) from error


def _refused(name: str, done: str, response: dict[str, Any]) -> LocationError:
    code = str(response.get("Error", {}).get("Code", ""))
    message = str(response.get("Error", {}).get("Message", ""))
    status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    said = f"the store answers {status} {code}: {message}".rstrip(": ")
    if code in ("ExpiredToken", "RequestTimeTooSkewed", "SlowDown") or status == 429 or status >= 500:
        return LocationError(f"{name} cannot be {done} now: {said}", retryable=True)
    if code == "NoSuchBucket":
        return LocationError(f"{name} cannot be {done}: there is no such bucket ({said})")
    if status in (401, 403) or code in ("AccessDenied", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
        return LocationError(f"{name} is forbidden: {said}")
    if status == 404 and code in ("NoSuchKey", "404"):
        return LocationError(f"{name} is not there: {said}")
    if status == 412:
        return LocationError(f"{name} has changed while it was read: {said}", retryable=True)
    return LocationError(f"{name} cannot be {done}: {said}")

"""Files that an HTTPS server has: they can be read."""

from __future__ import annotations

import http.client
import ssl
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urljoin

from inference_worker import access
from inference_worker.access import Access, Uri
from inference_worker.errors import LocationError
from inference_worker.locations import Sink, Source

TIMEOUT_SECONDS = 30.0  # for connecting, and for each piece of the answer


class HttpsLocation:
    """A file of a server. A redirect is followed only to where the same worker may read anyway."""

    def __init__(self, uri: Uri, allowed: Access) -> None:
        self.name = uri.text
        self._allowed = allowed

    def open(self) -> Source:
        """Ask for it. Raises LocationError."""
        context = ssl.create_default_context()
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        opener = urllib.request.build_opener(
            urllib.request.HTTPSHandler(context=context), _Redirects(self.name, self._allowed)
        )
        request = urllib.request.Request(self.name, headers={"Accept-Encoding": "identity"})
        try:
            answer = opener.open(request, timeout=TIMEOUT_SECONDS)
        except urllib.error.HTTPError as error:
            with error:
                raise _refused(self.name, error.code) from None
        except (OSError, http.client.HTTPException) as error:  # urllib.error.URLError is an OSError
            raise _unanswered(self.name, getattr(error, "reason", error)) from error
        length, headers = answer.headers.get("Content-Length", ""), answer.headers
        marks = [headers[name] for name in ("ETag", "Last-Modified") if headers.get(name)]
        return Source(_Body(self.name, answer), int(length) if length.isdigit() else None, " ".join(marks) or None)

    def create(self) -> Sink:
        """Raises LocationError: there is no one way to write to HTTPS servers."""
        raise LocationError(
            f"{self.name} cannot be written: give a URI that begins with s3://, or a path below WORK_DIR"
        )


class _Body:
    def __init__(self, name: str, answer: Any) -> None:
        self._name = name
        self._answer = answer

    def read(self, size: int, /) -> bytes:
        try:
            return self._answer.read(size)
        except (OSError, http.client.HTTPException) as error:
            raise _unanswered(self._name, error) from error

    def close(self) -> None:
        self._answer.close()


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Holds the target of a redirect to the rules of a URI of the config."""

    def __init__(self, name: str, allowed: Access) -> None:
        self._name = name
        self._allowed = allowed

    def redirect_request(self, req: Any, fp: Any, code: int, msg: str, headers: Any, newurl: str) -> Any:
        """The request that follows, or LocationError."""
        target = urljoin(req.full_url, newurl)
        try:
            uri = access.parse(target)
            if uri.scheme != "https":
                raise LocationError(f"{target} is no https:// URI")
            self._allowed.check(uri)
        except LocationError as error:
            raise LocationError(f"{self._name} redirects to where the worker does not go: {error}") from error
        return super().redirect_request(req, fp, code, msg, headers, newurl)


def _refused(name: str, status: int) -> LocationError:
    if status in (404, 410):
        return LocationError(f"{name} is not there: the server answers {status}")
    if status in (401, 403):
        return LocationError(f"{name} is forbidden: the server answers {status}")
    retryable = status == 429 or status >= 500
    return LocationError(f"{name} cannot be read: the server answers {status}", retryable=retryable)


def _unanswered(name: str, reason: object) -> LocationError:
    if isinstance(reason, ssl.SSLCertVerificationError):
        return LocationError(f"{name} cannot be read: its certificate is not trusted: {reason.verify_message}")
    return LocationError(f"{name} cannot be read now: {reason}", retryable=True)

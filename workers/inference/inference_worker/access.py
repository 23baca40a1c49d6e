"""Which locations may be used: in a pool those below the prefixes of ALLOWED_URIS, in a pod of the user's own all."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from inference_worker.errors import LocationError

SCHEMES = ("s3", "https")
MAX_URI_BYTES = 1500
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_AMBIGUOUS = re.compile(r"%(2e|2f|5c|25)", re.IGNORECASE)  # what a server may take for other segments
_HIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


@dataclass(frozen=True)
class Uri:
    """A URI in its parts. ``path`` has no leading slash; for s3 it is the key, as it is."""

    text: str
    scheme: str
    host: str
    path: str


def is_uri(text: object) -> bool:
    """Whether ``text`` means to be a URI, and not a path or the name of a model."""
    return isinstance(text, str) and "://" in text


def parse(text: str) -> Uri:
    """The parts of a URI. Raises LocationError when it has a form that the worker does not take."""
    scheme, _, rest = text.partition("://")
    if scheme not in SCHEMES:
        raise LocationError(f"{text} begins with {scheme}://, but must begin with s3:// or https://")
    if len(text.encode()) > MAX_URI_BYTES:
        raise LocationError(f"{text[:60]}… is longer than {MAX_URI_BYTES} bytes")
    if _HIDDEN.search(text):
        raise LocationError(f"{text!r} has a space, a backslash or a control character")
    host, _, path = rest.partition("/")
    if "@" in host:
        raise LocationError(f"{scheme}://… has a user or password in it: credentials are variables of the worker")
    if scheme == "s3":
        _check_s3(text, host, path)
    else:
        _check_https(text)
    segments = path.split("?", 1)[0].split("/")
    if "." in segments or ".." in segments:
        raise LocationError(f"{text} has a segment . or .. in it")
    if "" in segments[:-1]:
        raise LocationError(f"{text} has an empty segment in it")
    return Uri(text, scheme, host.lower() if scheme == "https" else host, path)


def _check_s3(text: str, bucket: str, key: str) -> None:
    if not _BUCKET.fullmatch(bucket):
        raise LocationError(f"{text} names no bucket: it must have the form s3://bucket/key")
    if "?" in key or "#" in key:
        raise LocationError(f"{text} has a ? or # in it")


def _check_https(text: str) -> None:
    try:
        parts = urlsplit(text)
        named = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        named = False
    if not named:
        raise LocationError(f"{text} names no host: it must have the form https://host/path")
    if parts.fragment:
        raise LocationError(f"{text} has a # in it")
    if not text.isascii() or _AMBIGUOUS.search(parts.path):
        raise LocationError(f"{text} has a character other than ASCII, or an escaped dot, slash, backslash or % in it")


@dataclass(frozen=True)
class Access:
    """What may be used. ``prefixes`` None: every location, since the pod and its credentials are the user's own."""

    prefixes: tuple[Uri, ...] | None

    @property
    def restricted(self) -> bool:
        """Whether only the prefixes may be used."""
        return self.prefixes is not None

    def check(self, uri: Uri) -> None:
        """Raise LocationError when ``uri`` may not be used."""
        if self.prefixes is not None and not any(_covers(prefix, uri) for prefix in self.prefixes):
            raise LocationError(
                f"{uri.text} is not allowed in this pool: ALLOWED_URIS of the worker has no prefix of it"
            )


def own() -> Access:
    """Of a pod that has one user, and that user's credentials."""
    return Access(None)


def pooled(env: Mapping[str, str]) -> Access:
    """Of a worker that several users share: ALLOWED_URIS, by default none. Raises LocationError for a wrong prefix."""
    prefixes = [prefix.strip() for prefix in env.get("ALLOWED_URIS", "").split(",") if prefix.strip()]
    try:
        return Access(tuple(parse(prefix) for prefix in prefixes))
    except LocationError as error:
        raise LocationError(f"ALLOWED_URIS of the worker is wrong: {error}") from error


def _covers(prefix: Uri, uri: Uri) -> bool:
    """Whether ``uri`` is ``prefix`` or below it: s3://models/a covers s3://models/a/b, not s3://models/ab."""
    if (prefix.scheme, prefix.host) != (uri.scheme, uri.host):
        return False
    above, below = prefix.path, uri.path
    return not above or above == below or below.startswith(above if above.endswith("/") else above + "/")

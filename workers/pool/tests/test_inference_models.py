"""Models by URI: what a pool allows, how a model is fetched and kept, and what is said when that fails."""

from __future__ import annotations

import hashlib
import socket
import ssl
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import scripted
from conftest import PACKAGES
from inference_worker import access, locations, model_store
from inference_worker.errors import LocationError
from inference_worker.handler import infer
from inference_worker.model_store import ModelStore
from pool_worker.errors import ConfigError, TaskError
from pool_worker.places import inside_work_dir
from pool_worker.tasks import Context, Task
from s3_server import S3


def run(**config: Any) -> Any:
    return infer(Task("id", 1, "inference", config, visibility_seconds=30), Context())


@pytest.mark.parametrize(
    ("prefixes", "uri", "allowed"),
    [
        ("", "s3://models/a.pt", False),
        ("s3://models", "s3://models/a.pt", True),
        ("s3://models/", "s3://models/a/b.pt", True),
        ("s3://models/", "s3://models-secret/a.pt", False),
        ("s3://models/team", "s3://models/team/a.pt", True),
        ("s3://models/team", "s3://models/team", True),
        ("s3://models/team", "s3://models/team-two/a.pt", False),
        ("s3://models/team/", "s3://models/team", False),
        ("s3://models/team", "s3://models/Team/a.pt", False),
        ("s3://one/, s3://two/", "s3://two/a.pt", True),
        ("https://host/models/", "https://host/models/a.pt", True),
        ("https://host/models/", "https://HOST/models/a.pt?signature=x", True),
        ("https://host/models/", "https://host:444/models/a.pt", False),
        ("https://host/models/", "https://host/other/a.pt?/models/", False),
        ("https://host/models/", "https://host.example.com/models/a.pt", False),
        ("https://host/", "s3://host/a.pt", False),
    ],
)
def test_a_pool_allows_what_lies_below_its_prefixes(prefixes: str, uri: str, allowed: bool) -> None:
    rules = access.pooled({"ALLOWED_URIS": prefixes})
    if allowed:
        rules.check(access.parse(uri))
    else:
        words = "is not allowed in this pool: ALLOWED_URIS of the worker has no prefix of it"
        with pytest.raises(LocationError, match=words):
            rules.check(access.parse(uri))
    access.own().check(access.parse(uri))


@pytest.mark.parametrize(
    ("uri", "words"),
    [
        ("http://host/a.pt", "must begin with s3:// or https://"),
        ("file:///etc/passwd", "must begin with s3:// or https://"),
        ("s3://models/../secret/a.pt", "has a segment . or .."),
        ("s3://models/./a.pt", "has a segment . or .."),
        ("s3://models//a.pt", "has an empty segment"),
        ("s3://models/a.pt?versionId=1", "has a \\? or #"),
        ("s3://key:secret@models/a.pt", "has a user or password"),
        ("https://user@host/a.pt", "has a user or password"),
        ("https://host/models/%2e%2E/a.pt", "an escaped dot"),
        ("https://host/models%2Fa.pt", "an escaped dot, slash"),
        ("https://host/models/%252e/a.pt", "an escaped dot, slash, backslash or %"),
        ("https://host/a.pt#b", "has a #"),
        ("https:///a.pt", "names no host"),
        ("https://host:x/a.pt", "names no host"),
        ("s3:///a.pt", "names no bucket"),
        ("s3://B/a.pt", "names no bucket"),
        ("s3://models/a b.pt", "has a space"),
        ("s3://models/" + "a" * 1500, "is longer than 1500 bytes"),
    ],
)
def test_forms_that_no_worker_takes(uri: str, words: str) -> None:
    with pytest.raises(LocationError, match=words):
        access.parse(uri)


def test_a_wrong_prefix_is_told_with_its_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ALLOWED_URIS", "s3://models/,/data")
    with pytest.raises(ConfigError, match="ALLOWED_URIS of the worker is wrong: /data"):
        run(model="s3://models/a.pt", inputs=[[1]])


def test_a_model_is_run_that_a_uri_names(s3: S3) -> None:
    uri = s3.put("team/affine.pt", scripted.saved(scripted.Affine()))
    result = run(model=uri, inputs=[[1, 2, 3], [0, 0, 0], [1, 0, 0]], batch_size=2)
    assert result["outputs"] == [[pytest.approx(v) for v in row] for row in ([14.1, -0.95], [0.1, -0.2], [1.1, 0.3])]
    assert (result["model"], result["count"], result["latency_ms"]["batches"]) == (uri, 3, 2)
    assert run(model=uri, inputs=[[1, 2, 3], [0, 0, 0]], postprocess="argmax")["outputs"] == [0, 0]
    assert sum(run(model=uri, inputs=[[1, 2, 3]], postprocess="softmax")["outputs"][0]) == pytest.approx(1)


def test_a_changed_object_is_fetched_again_and_no_other(s3: S3) -> None:
    uri = s3.put("m.pt", scripted.saved(scripted.Scale(2.0)))
    assert run(model=uri, inputs=[[1, 2]])["outputs"] == [[2, 4]]
    (first,) = inside_work_dir("x").parent.joinpath(".models").iterdir()
    before = first.stat()
    assert run(model=uri, inputs=[[1, 2]])["outputs"] == [[2, 4]]
    assert (first.stat().st_ino, first.stat().st_size) == (before.st_ino, before.st_size)
    s3.put("m.pt", scripted.saved(scripted.Scale(3.0)))
    assert run(model=uri, inputs=[[1, 2]])["outputs"] == [[3, 6]]
    assert len(list(first.parent.iterdir())) == 2


def test_models_are_kept_in_memory_and_old_files_make_room(s3: S3, tmp_path: Path) -> None:
    found = [
        locations.find(s3.put(f"{i}.pt", scripted.saved(scripted.Scale(float(i)))), access.own()) for i in range(1, 5)
    ]
    size = len(s3.get("1.pt"))
    store = ModelStore(tmp_path / "models", max_bytes=size + 500)  # two files have room
    first = store.load(found[0], None, lambda: None)
    assert store.load(found[0], None, lambda: None) is first
    for location in found[1:]:
        store.load(location, None, lambda: None)
    assert len(list((tmp_path / "models").iterdir())) == 2
    assert store.load(found[0], None, lambda: None) is not first


def test_a_checksum_is_verified(s3: S3) -> None:
    content = scripted.saved(scripted.Scale(2.0))
    uri, digest = s3.put("m.pt", content), hashlib.sha256(content).hexdigest()
    assert run(model=uri, model_sha256=digest.upper(), inputs=[[1]])["outputs"] == [[2]]
    with pytest.raises(ConfigError, match=f"config.model_sha256: is {'0' * 64}, but {uri} has {digest}"):
        run(model=uri, model_sha256="0" * 64, inputs=[[1]])
    with pytest.raises(ConfigError, match="config.model_sha256: is 'abc', but must be the 64 hexadecimal digits"):
        run(model=uri, model_sha256="abc", inputs=[[1]])


def test_errors_name_the_model(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    content = scripted.saved(scripted.Affine())
    uri = s3.put("m.pt", content)
    for model, words in (
        (s3.put("text.pt", b"no model"), "text.pt is no TorchScript file: save the model with torch.jit"),
        (s3.uri("missing.pt"), "missing.pt is not there"),
        ("s3://elsewhere/m.pt", "is not allowed in this pool: ALLOWED_URIS"),
        (s3.uri("folder/"), "names no object"),
    ):
        with pytest.raises(ConfigError, match=f"config.model: .*{words}"):
            run(model=model, inputs=[[1]])
    with pytest.raises(TaskError, match=r"config.inputs\[0\] to \[0\]: the model cannot take it: .*shape") as caught:
        run(model=uri, inputs=[[1, 2]])
    assert not caught.value.retryable
    with pytest.raises(ConfigError, match="config.model: forward returns the shape"):
        run(model=s3.put("total.pt", scripted.saved(scripted.Total())), inputs=[[1], [2]])
    monkeypatch.setenv("MODEL_MAX_BYTES", str(len(content) - 1))
    with pytest.raises(ConfigError, match="config.model: .* is larger than .*: raise MODEL_MAX_BYTES"):
        run(model=uri, inputs=[[1, 2, 3]])
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another")
    with pytest.raises(ConfigError, match="config.model: .* is forbidden"):
        run(model=uri, inputs=[[1, 2, 3]])


def test_a_store_that_does_not_answer_is_worth_another_try(s3: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        monkeypatch.setenv("S3_ENDPOINT_URL", f"http://127.0.0.1:{free.getsockname()[1]}")
    with pytest.raises(TaskError, match="config.model: .* cannot be read now") as caught:
        run(model=s3.uri("m.pt"), inputs=[[1]])
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("config", "words"),
    [
        ({}, "config.inputs: is missing"),
        ({"inputs": [[1, 2], [1]]}, r"config.inputs\[1\]: has the shape \[1\], but inputs\[0\] has \[2\]"),
        ({"inputs": [[[1, 2], [1]]]}, r"config.inputs\[0\]: its lists have different lengths"),
        ({"inputs": [["1"]]}, r"config.inputs\[0\]: must be a list of numbers"),
        ({"inputs": [[True]]}, r"config.inputs\[0\]: must be a list of numbers"),
        ({"inputs": [[None]]}, r"config.inputs\[0\]: must be a list of numbers"),
        ({"inputs": [5]}, r"config.inputs\[0\]: must be a list of numbers"),
        ({"inputs": [[]]}, r"config.inputs\[0\]: has no numbers"),
        ({"inputs": [[1e300]]}, r"config.inputs\[0\]: has a number that is too large"),
        ({"inputs": [[1]] * 2001}, "config.inputs: has 2001 entries"),
        ({"inputs": [[1]], "postprocess": "sort"}, "config.postprocess: is 'sort'"),
        ({"inputs": [[1]], "probabilities": True}, "config.probabilities: is unknown"),
        ({"inputs": [[1]], "output": "o.jsonl"}, "config.input: is missing"),
        ({"input": ".models/a", "output": "o.jsonl"}, "config.input: is '.models/a', but .models is the worker's own"),
    ],
)
def test_wrong_configs_are_refused(s3: S3, config: dict[str, Any], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        run(model=s3.uri("m.pt"), **config)


def test_the_path_of_a_model_is_for_pods_of_ones_own(s3: S3) -> None:
    with pytest.raises(ConfigError, match="config.model: is 'team/m.pt', but must be one of digits-cnn"):
        run(model="team/m.pt", inputs=[[1]])


def test_nothing_of_the_store_is_loaded_before_it_is_needed() -> None:
    program = "import sys, inference_worker.handler; assert not {'boto3', 'botocore', 'requests'} & set(sys.modules)"
    env = {"PYTHONPATH": ":".join(PACKAGES), "PYTHONDONTWRITEBYTECODE": "1"}
    subprocess.run([sys.executable, "-c", program], env=env, check=True, timeout=300)


class Https:
    """A server of files; some of them are redirects."""

    def __init__(self, folder: Path) -> None:
        self.files: dict[str, bytes] = {}
        self.redirects: dict[str, str] = {}
        self.certificate = folder / "tls.crt"
        key = folder / "tls.key"
        command = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"]
        command += ["-days", "2", "-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"]
        subprocess.run([*command, "-keyout", key, "-out", self.certificate], check=True, capture_output=True)
        files, redirects = self.files, self.redirects

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:  # noqa: N802 (name given by http.server)
                content = files.get(self.path)
                self.send_response(302 if self.path in redirects else 404 if content is None else 200)
                if target := redirects.get(self.path):
                    self.send_header("Location", target)
                self.send_header("Content-Length", str(len(content or b"")))
                self.send_header("ETag", '"1"')
                self.end_headers()
                self.wfile.write(content[: len(content) // 2] if content and "half" in self.path else content or b"")

            def log_message(self, *_: object) -> None:
                """Tests look at results."""

        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate, key)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self.url = f"https://localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Https]:
    server = Https(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(server.certificate))
    monkeypatch.setenv("ALLOWED_URIS", f"{server.url}/models/")
    monkeypatch.setenv("WORK_DIR", str(tmp_path / "work"))
    yield server
    server.close()


def test_a_model_of_an_https_server(https: Https) -> None:
    https.files["/models/m.pt"] = scripted.saved(scripted.Scale(2.0))
    https.redirects["/models/latest.pt"] = "/models/m.pt"
    assert run(model=f"{https.url}/models/m.pt", inputs=[[1]])["outputs"] == [[2]]
    assert run(model=f"{https.url}/models/latest.pt", inputs=[[3]])["outputs"] == [[6]]


def test_an_https_server_leads_nowhere_else(https: Https, monkeypatch: pytest.MonkeyPatch) -> None:
    https.files |= {"/other/m.pt": b"secret", "/models/half.pt": b"0123456789"}
    https.redirects |= {"/models/away.pt": "/other/m.pt", "/models/plain.pt": "http://localhost/models/m.pt"}
    for name, words in (
        ("away.pt", "redirects to where the worker does not go: .*/other/m.pt is not allowed"),
        ("plain.pt", "redirects to where the worker does not go: .*must begin with s3:// or https://"),
        ("missing.pt", "is not there: the server answers 404"),
    ):
        with pytest.raises(ConfigError, match=f"config.model: .*{words}"):
            run(model=f"{https.url}/models/{name}", inputs=[[1]])
    with pytest.raises(TaskError, match="half.pt ended after 5 of 10 bytes|half.pt cannot be read now") as caught:
        run(model=f"{https.url}/models/half.pt", inputs=[[1]])
    assert caught.value.retryable
    assert list(model_store.store()._folder.iterdir()) == []
    monkeypatch.delenv("SSL_CERT_FILE")
    with pytest.raises(ConfigError, match="its certificate is not trusted"):
        run(model=f"{https.url}/models/m.pt", inputs=[[1]])

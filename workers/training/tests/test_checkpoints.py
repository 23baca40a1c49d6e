"""Checkpoints on disk."""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any, BinaryIO

import pytest

from training_worker import checkpoints
from training_worker.checkpoint_request import DONE, REQUEST, RequestFile
from training_worker.checkpoints import CheckpointDirectory, InvalidCheckpointError
from training_worker.errors import CheckpointWriteError, DataError
from training_worker.logs import Log

LOG = Log()
# Calls before and after which all is the same on the disk.
READING = {"access", "fileno", "fspath", "fstat", "listdir", "lstat", "readable", "readinto", "scandir", "stat", "urandom"}
# Exit statuses of a process: the other thing was done in it or not, or its work failed.
ENDED, ENDED_BEFORE, FAILED = 0, 1, 2


def save(directory: CheckpointDirectory, epoch: int, step: int | None = None, name: str | None = None) -> Path:
    """Save a small checkpoint."""
    content = f"state of epoch {epoch}".encode()
    manifest = {"epoch": epoch, "step": epoch * 10 if step is None else step}
    name = name or checkpoints.epoch_name(epoch)
    return directory.save(name, {"state.pt": lambda stream: stream.write(content)}, manifest).path


def names(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.iterdir())


@pytest.fixture
def directory(tmp_path: Path) -> CheckpointDirectory:
    return CheckpointDirectory(tmp_path / "not" / "there" / "yet", retention=0, log=LOG)


def test_a_saved_checkpoint_verifies_and_describes_itself(directory: CheckpointDirectory) -> None:
    path = save(directory, epoch=3)
    found = checkpoints.verify(path)
    assert (found.epoch, found.step, found.size_bytes) == (3, 30, len(b"state of epoch 3"))
    assert found.manifest["createdTime"].endswith("Z")
    assert [entry["path"] for entry in found.manifest["files"]] == ["state.pt"]
    assert names(path) == ["manifest.json", "state.pt"]


def test_a_failed_write_leaves_nothing_behind(directory: CheckpointDirectory) -> None:
    def fail(_: BinaryIO) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(CheckpointWriteError, match="No space left"):
        directory.save("checkpoint-epoch-1", {"state.pt": fail}, {"epoch": 1, "step": 1})
    assert names(directory.path) == []


def test_a_crash_before_the_rename_is_invisible_and_cleaned_up(
    directory: CheckpointDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Crash(BaseException):
        """Stands for the death of the process."""

    def crash(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", crash)
        with pytest.raises(Crash):
            save(directory, epoch=1)
    [left] = names(directory.path)
    assert left.startswith(".writing-checkpoint-epoch-1-")
    assert directory.newest_valid() is None
    directory.clean()
    assert names(directory.path) == []


def ends(work: Callable[[], object], call: int, at: Callable[[], object]) -> int:
    """The exit status of a process that does ``work``, and ``at`` before its call number ``call`` that may write."""
    pid = os.fork()
    if pid == 0:
        left = call

        def count(_: FrameType, event: str, function: Any) -> None:
            nonlocal left
            if event != "c_call" or function.__name__ in READING:
                return
            on_a_file = isinstance(getattr(function, "__self__", None), io.IOBase)
            if on_a_file or function is open or getattr(function, "__module__", "") == "posix":
                left -= 1
                if left == -1:
                    at()

        code = FAILED
        try:
            sys.setprofile(count)
            work()
            code = ENDED if left < 0 else ENDED_BEFORE
        finally:
            sys.setprofile(None)
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def kill() -> None:
    """Kill this process."""
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_writer_killed_between_any_two_calls_leaves_whole_checkpoints(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)  # of use when the machine dies, and slow
    before = CheckpointDirectory(tmp_path / "before", retention=2, log=LOG)
    old, _, bad = save(before, epoch=1), save(before, epoch=2), save(before, epoch=3)
    (bad / "state.pt").write_text("garbage")
    older = save(before, epoch=0, step=5, name=checkpoints.step_name(5))
    (older / "state.pt").unlink()
    os.utime(older, (1, 1))

    def write(path: Path) -> None:
        """Replaces the damaged epoch 3, adds epoch 4, and removes all before them."""
        directory = CheckpointDirectory(path, retention=2, log=LOG)
        for epoch in (3, 4):
            save(directory, epoch)
        directory.prune()

    seen: set[str] = set()
    for call in itertools.count():
        path = tmp_path / "killed"
        shutil.copytree(before.path, path)
        ended = ends(partial(write, path), call, kill)
        assert ended in (-signal.SIGKILL, ENDED_BEFORE), f"the work failed before call {call}"
        seen.update(names(path))

        damaged = [path / older.name]
        if (path / bad.name / "state.pt").exists() and (path / bad.name / "state.pt").read_text() == "garbage":
            damaged.append(path / bad.name)
        capsys.readouterr()
        reader = CheckpointDirectory(path, retention=2, log=LOG)
        found = reader.newest_valid()
        assert found is not None and found.epoch >= 2, f"the newest whole one is lost before call {call}"
        told = [line for line in capsys.readouterr().out.splitlines() if "is skipped" in line]
        assert all(any(str(one) in line for one in damaged) for line in told), f"before call {call}: {told}"
        for one in path.glob("checkpoint-*"):
            if one not in damaged:
                checkpoints.verify(one)

        reader.clean()
        for epoch in range(found.epoch + 1, 5):
            save(reader, epoch)
        reader.prune()
        assert names(path) == ["checkpoint-epoch-3", "checkpoint-epoch-4"], f"before call {call}"
        shutil.rmtree(path)
        if ended == ENDED_BEFORE:
            break
    for hidden in (f".writing-{bad.name}-", f".deleting-{bad.name}", f".deleting-{old.name}"):
        assert any(name.startswith(hidden) for name in seen), f"it was not killed while there was {hidden}"


def test_a_writer_that_goes_on_beside_its_successor_leaves_whole_checkpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker on a node that does not answer lives until it hears of its end, and its successor runs meanwhile."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    path = tmp_path / "shared"

    def succeed() -> None:
        successor = CheckpointDirectory(path, retention=1, log=LOG)
        successor.clean()
        save(successor, epoch=2)
        successor.prune()

    for call in itertools.count():
        save(CheckpointDirectory(path, retention=1, log=LOG), epoch=1)
        ended = ends(partial(save, CheckpointDirectory(path, retention=1, log=LOG), epoch=2), call, succeed)
        assert ended in (ENDED, FAILED, ENDED_BEFORE)
        for one in path.glob("checkpoint-*"):
            checkpoints.verify(one)
        found = CheckpointDirectory(path, retention=1, log=LOG).newest_valid()
        assert found is not None and found.epoch == 2, f"all are lost before call {call}"
        shutil.rmtree(path)
        if ended == ENDED_BEFORE:
            break


def test_a_predecessor_cannot_make_visible_what_its_successor_removes(tmp_path: Path) -> None:
    before = tmp_path / "before"
    hidden = ".writing-checkpoint-epoch-1-0"
    save(CheckpointDirectory(before, retention=0, log=LOG), epoch=1).rename(before / hidden)
    path = tmp_path / "shared"

    def finish() -> None:
        with contextlib.suppress(FileNotFoundError):
            os.rename(path / hidden, path / "checkpoint-epoch-1")

    for call in itertools.count():
        shutil.copytree(before, path)
        ended = ends(CheckpointDirectory(path, retention=0, log=LOG).clean, call, finish)
        assert ended in (ENDED, ENDED_BEFORE)
        for one in path.glob("checkpoint-*"):
            checkpoints.verify(one)
        shutil.rmtree(path)
        if ended == ENDED_BEFORE:
            break


@pytest.mark.parametrize("damage", ["truncated", "changed", "file missing", "manifest broken", "manifest missing"])
def test_a_damaged_checkpoint_is_skipped_with_a_log_line(
    directory: CheckpointDirectory, damage: str, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad = save(directory, epoch=1), save(directory, epoch=2)
    state, manifest = bad / "state.pt", bad / "manifest.json"
    if damage == "truncated":
        state.write_bytes(state.read_bytes()[:-1])
    elif damage == "changed":
        state.write_bytes(state.read_bytes()[::-1])
    elif damage == "file missing":
        state.unlink()
    elif damage == "manifest broken":
        manifest.write_text('{"epoch": 2')
    else:
        manifest.unlink()
    found = directory.newest_valid()
    assert found is not None and found.path == good
    assert f"checkpoint {bad} is skipped" in capsys.readouterr().out


def test_the_newest_is_the_one_with_the_most_steps(directory: CheckpointDirectory) -> None:
    save(directory, epoch=2, step=20)
    newest = save(directory, epoch=2, step=25, name=checkpoints.step_name(25))
    older = save(directory, epoch=1, step=10)
    os.utime(older)
    found = directory.newest_valid()
    assert found is not None and found.path == newest


def test_a_manifest_cannot_name_files_outside(directory: CheckpointDirectory, tmp_path: Path) -> None:
    path = save(directory, epoch=1)
    (tmp_path / "secret").write_text("x")
    document = json.loads((path / "manifest.json").read_text())
    for name in ("../../../../secret", str(tmp_path / "secret")):
        document["files"] = [{"path": name, "size": 1, "sha256": ""}]
        (path / "manifest.json").write_text(json.dumps(document))
        with pytest.raises(InvalidCheckpointError, match="lies outside"):
            checkpoints.verify(path)


def test_saving_again_replaces_a_damaged_checkpoint(directory: CheckpointDirectory) -> None:
    path = save(directory, epoch=1)
    (path / "state.pt").write_text("garbage")
    assert checkpoints.verify(save(directory, epoch=1)).epoch == 1
    assert names(directory.path) == ["checkpoint-epoch-1"]


def test_retention_keeps_the_newest(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path, retention=2, log=LOG)
    for epoch in (1, 2, 3, 10):
        save(directory, epoch)
    removed = directory.prune()
    assert sorted(path.name for path in removed) == ["checkpoint-epoch-1", "checkpoint-epoch-2"]
    assert names(tmp_path) == ["checkpoint-epoch-10", "checkpoint-epoch-3"]


def test_retention_never_deletes_the_newest_valid_one(tmp_path: Path) -> None:
    writer = CheckpointDirectory(tmp_path, retention=0, log=LOG)
    for epoch in (1, 2, 3):
        save(writer, epoch)
    for epoch in (2, 3):
        state = tmp_path / f"checkpoint-epoch-{epoch}" / "state.pt"
        state.write_bytes(state.read_bytes()[::-1])  # the size still fits, the content does not
    CheckpointDirectory(tmp_path, retention=1, log=LOG).prune()
    assert "checkpoint-epoch-1" in names(tmp_path)


def test_retention_never_deletes_the_one_being_restored(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path, retention=1, log=LOG)
    restored = save(directory, epoch=1)
    save(directory, epoch=2)
    save(directory, epoch=3)
    directory.prune(protected=[restored])
    assert names(tmp_path) == ["checkpoint-epoch-1", "checkpoint-epoch-3"]


def test_what_the_agent_deletes_meanwhile_is_no_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    directory = CheckpointDirectory(tmp_path, retention=1, log=LOG)
    for epoch in (1, 2, 3):
        save(directory, epoch)
    rename = os.rename

    def delete_first(source: Path, target: Path) -> None:
        if source.name == "checkpoint-epoch-2":
            shutil.rmtree(source)
        rename(source, target)

    with monkeypatch.context() as patched:
        patched.setattr(os, "rename", delete_first)
        removed = directory.prune()
        assert [path.name for path in removed] == ["checkpoint-epoch-1"]
        assert names(tmp_path) == ["checkpoint-epoch-3"]
        (save(directory, epoch=2) / "state.pt").write_text("garbage")
        assert checkpoints.verify(save(directory, epoch=2)).epoch == 2


def test_retention_removes_damaged_checkpoints_that_are_older_than_all_kept(tmp_path: Path) -> None:
    directory = CheckpointDirectory(tmp_path, retention=1, log=LOG)
    damaged = save(directory, epoch=1)
    (damaged / "manifest.json").unlink()
    os.utime(damaged, (1, 1))
    save(directory, epoch=2)
    directory.prune()
    assert names(tmp_path) == ["checkpoint-epoch-2"]


@pytest.mark.parametrize("below", [".", "job", "namespace/job"])
def test_resume_looks_at_most_two_levels_down(tmp_path: Path, below: str) -> None:
    directory = CheckpointDirectory(tmp_path / below, retention=0, log=LOG)
    save(directory, epoch=1)
    newest = save(directory, epoch=2)
    if below == "namespace/job":
        with pytest.raises(DataError, match="no valid checkpoint"):
            checkpoints.find_to_resume(tmp_path, LOG)
    else:
        assert checkpoints.find_to_resume(tmp_path, LOG).path == newest
    assert checkpoints.find_to_resume(newest, LOG).path == newest


def test_resuming_from_a_named_but_damaged_checkpoint_is_an_error(directory: CheckpointDirectory) -> None:
    save(directory, epoch=1)
    bad = save(directory, epoch=2)
    (bad / "state.pt").write_text("")
    with pytest.raises(DataError, match="not valid"):
        checkpoints.find_to_resume(bad, LOG)
    with pytest.raises(DataError, match="no such directory"):
        checkpoints.find_to_resume(bad / "nowhere", LOG)


def test_a_request_is_answered_and_then_removed(directory: CheckpointDirectory) -> None:
    requests = RequestFile(directory.path)
    assert requests.pending() is None
    (directory.path / REQUEST).write_text("request-7\n")
    request = RequestFile(directory.path).pending()
    assert request is not None and request.id == "request-7"
    requests.answer(request, checkpoints.verify(save(directory, epoch=4)))
    answer = json.loads((directory.path / DONE).read_text())
    assert (answer["id"], answer["checkpoint"], answer["step"]) == ("request-7", "checkpoint-epoch-4", 40)
    assert not (directory.path / REQUEST).exists()


def test_a_request_that_replaced_the_answered_one_stays(directory: CheckpointDirectory) -> None:
    path = directory.path / REQUEST
    path.write_text("first")
    request = RequestFile(directory.path).pending()
    replacement = directory.path / "new"
    replacement.write_text("second")
    replacement.rename(path)
    RequestFile(directory.path).answer(request, None, error="disk full")
    assert path.read_text() == "second"
    assert json.loads((directory.path / DONE).read_text())["error"] == "disk full"

"""A user's own script on the image, with PyTorch as it is there: with or without libuv."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import free_port

# Like a script of the PyTorch tutorials: it sets nothing that has to do with stores.
SCRIPT = """
import torch
import torch.distributed as dist

dist.init_process_group("gloo")
total = torch.ones(1)
dist.all_reduce(total)
print(f"rank {dist.get_rank()} of {dist.get_world_size()} counts {total.item():.0f}", flush=True)
dist.destroy_process_group()
"""

# Like a PyTorch whose stores ask for libuv and are built without it.
WITHOUT_LIBUV = """
class TCPStore:
    def __init__(self, host, use_libuv=True):
        if use_libuv:
            raise RuntimeError("use_libuv was requested but PyTorch was build without libuv support")
        if host == "nowhere":
            raise RuntimeError("cannot connect")
        self.host, self.use_libuv = host, use_libuv
"""
WITH_LIBUV = WITHOUT_LIBUV.replace("if use_libuv:", "if False:")


@pytest.fixture
def env(image_path: str) -> dict[str, str]:
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": image_path,
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
    }


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return str(path)


def finish(*processes: subprocess.Popen[str]) -> str:
    """The output of all. None may fail."""
    outputs = [process.communicate(timeout=180)[0] for process in processes]
    assert [process.returncode for process in processes] == [0] * len(processes), "".join(outputs)
    return "".join(outputs)


def start(command: list[str], env: dict[str, str]) -> subprocess.Popen[str]:
    return subprocess.Popen(command, env=env, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_a_script_meets_its_ranks_by_the_environment(script: str, env: dict[str, str]) -> None:
    place = {**env, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "WORLD_SIZE": "2"}
    output = finish(*(start([sys.executable, script], {**place, "RANK": str(rank)}) for rank in range(2)))
    assert "rank 0 of 2 counts 2" in output and "rank 1 of 2 counts 2" in output


@pytest.mark.parametrize(
    "settings",
    [
        {"PET_NNODES": "1", "PET_NODE_RANK": "0", "PET_MASTER_ADDR": "127.0.0.1"},
        {"PET_NNODES": "1:1", "PET_RDZV_BACKEND": "c10d", "PET_RDZV_ID": "job"},
    ],
    ids=["static", "elastic"],
)
def test_torchrun_starts_a_script(tmp_path: Path, script: str, env: dict[str, str], settings: dict[str, str]) -> None:
    port = free_port()
    place = {"PET_MASTER_PORT": str(port)}
    if "PET_RDZV_ID" in settings:
        place = {"PET_RDZV_ENDPOINT": f"127.0.0.1:{port}"}
    # --redirects and --tee: PyTorch 1.13 cannot read their default under Python 3.11.
    command = ["-m", "torch.distributed.run", "--redirects=1", "--tee=1", f"--log_dir={tmp_path}"]
    output = finish(start([sys.executable, *command, "--nproc_per_node=2", script], {**env, **settings, **place}))
    assert "rank 0 of 2 counts 2" in output and "rank 1 of 2 counts 2" in output


@pytest.mark.parametrize(
    ("built", "program", "said"),
    [
        (WITHOUT_LIBUV, "print(dist.TCPStore('here').use_libuv)", "False"),
        (WITHOUT_LIBUV, "print(dist.TCPStore('here', use_libuv=True).use_libuv)", "False"),
        (WITH_LIBUV, "print(dist.TCPStore('here').use_libuv)", "True"),
        (WITH_LIBUV, "print(dist.TCPStore('here', use_libuv=False).use_libuv)", "False"),
        (WITHOUT_LIBUV, "print(type(dist.TCPStore('here')) is dist.TCPStore)", "True"),
        ("", "print(hasattr(dist, 'TCPStore'))", "False"),
    ],
)
def test_the_store_does_without_libuv_only_where_it_must(
    tmp_path: Path, env: dict[str, str], built: str, program: str, said: str
) -> None:
    assert run_with_torch(tmp_path, env, built, program) == said


def test_other_errors_of_the_store_are_its_own(tmp_path: Path, env: dict[str, str]) -> None:
    program = "try: dist.TCPStore('nowhere', use_libuv=False)\nexcept RuntimeError as error: print(error)"
    assert run_with_torch(tmp_path, env, WITHOUT_LIBUV, program) == "cannot connect"


def run_with_torch(tmp_path: Path, env: dict[str, str], distributed: str, program: str) -> str:
    package = tmp_path / "packages" / "torch" / "distributed"
    package.mkdir(parents=True)
    (package.parent / "__init__.py").write_text("")
    (package / "__init__.py").write_text(distributed)
    path = f"{tmp_path / 'packages'}:{env['PYTHONPATH']}"
    command = [sys.executable, "-c", f"import torch.distributed as dist\n{program}"]
    return finish(start(command, {**env, "PYTHONPATH": path})).strip()


def test_other_programs_import_next_to_nothing(env: dict[str, str], tmp_path: Path) -> None:
    command = [sys.executable, "-c", "import site, sys; print(*sys.modules)"]
    plain = finish(start(command, {**env, "PYTHONPATH": str(tmp_path)})).split()
    added = set(finish(start(command, env)).split()) - set(plain)
    own = {"training_worker", "training_worker.libuv"}
    assert own <= added <= own | {"sitecustomize", "__future__", "encodings.utf_8_sig"}

"""docs/worker-contract.md says what the worker does, and its example works."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import WORKER_ROOT, free_port

from training_worker import checkpoints, config, errors
from training_worker.metrics import render
from training_worker.progress import CheckpointReport, Report

DOCUMENT = WORKER_ROOT.parent.parent / "docs" / "worker-contract.md"
pytestmark = pytest.mark.skipif(not DOCUMENT.exists(), reason="the documentation is not part of this copy")


def test_every_metric_is_documented() -> None:
    everything = Report(loss=1, accuracy=1, metrics={"x": 1}, checkpoint=CheckpointReport("/p", 1, 1, 1, 1))
    names = re.findall(r"# TYPE (\w+)", render(everything, gpu_utilization=1))
    assert len(names) > 10
    assert [name for name in names if name not in DOCUMENT.read_text()] == []


def test_every_variable_is_documented() -> None:
    source = Path(config.__file__).read_text()
    names = set(re.findall(r'read\.\w+\(\s*"([A-Z_]+)"', source)) | set(config.HYPERPARAMETER_NAMES)
    assert len(names) > 30
    assert [name for name in sorted(names) if f"`{name}`" not in DOCUMENT.read_text()] == []


def test_every_exit_code_is_documented() -> None:
    codes = [value for name, value in vars(errors).items() if name.startswith("EXIT_") and name != "EXIT_SIGNAL_BASE"]
    assert [code for code in codes if f"\n| {code} |" not in DOCUMENT.read_text()] == []


def test_the_example_trains_and_resumes(tmp_path: Path, image_path: str) -> None:
    (example,) = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    (tmp_path / "train.py").write_text(example)
    for epochs in (1, 3):
        base = {
            "PATH": os.environ["PATH"],
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "METRICS_PORT": str(free_port()),
            "WORLD_SIZE": "2",
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": image_path,
            "EPOCHS": str(epochs),
            "CHECKPOINT_DIR": str(tmp_path / "checkpoints"),
            "TERMINATION_MESSAGE_PATH": str(tmp_path / "message"),
        }
        ranks = [
            subprocess.Popen([sys.executable, str(tmp_path / "train.py")], env={**base, "RANK": str(rank)})
            for rank in range(2)
        ]
        assert [rank.wait(60) for rank in ranks] == [0, 0]
        message = json.loads((tmp_path / "message").read_text())
        assert message["training_epoch"] == epochs
    saved = sorted((tmp_path / "checkpoints").iterdir())
    assert [checkpoints.verify(path).epoch for path in saved] == [1, 2, 3]

"""Settings from the environment."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from training_worker import config, launcher
from training_worker.errors import UsageError

MINIMAL = {"MODEL": "cnn", "DATASET": "digits"}


def test_defaults_need_only_model_and_data_set() -> None:
    loaded = config.load(MINIMAL)
    assert loaded.hyperparameters.epochs == 10
    assert loaded.topology.world_size == 1
    assert loaded.checkpoints.directory is None
    assert loaded.metrics_port == 8080
    assert str(loaded.termination_message_path) == "/dev/termination-log"


def test_pauses_after_steps_end_once_the_file_exists(tmp_path: Path) -> None:
    loaded = config.load({**MINIMAL, "STEP_DELAY_SECONDS": "0.5", "STEP_DELAY_UNTIL": str(tmp_path / "go")})
    assert loaded.step_delay() == 0.5
    (tmp_path / "go").touch()
    assert loaded.step_delay() == 0
    assert config.load({**MINIMAL, "STEP_DELAY_SECONDS": "0.5"}).step_delay() == 0.5


def test_hyperparameters_come_from_json_and_single_variables_win() -> None:
    document = {
        "learningRate": 0.01,
        "batchSize": 16,
        "mixedPrecision": True,
        "additionalParams": {"weight_decay": "0.1", "seed": "7", "lrDecay": "0.5"},
    }
    loaded = config.load({**MINIMAL, "HYPERPARAMETERS": json.dumps(document), "BATCH_SIZE": "32"}).hyperparameters
    assert (loaded.learning_rate, loaded.batch_size, loaded.mixed_precision) == (0.01, 32, True)
    assert (loaded.weight_decay, loaded.seed, loaded.unused) == (0.1, 7, ("LR_DECAY",))


@pytest.mark.parametrize(
    ("parameter", "variable"),
    [
        ("learningRate", "LEARNING_RATE"),
        ("weight_decay", "WEIGHT_DECAY"),
        ("adam.beta-1", "ADAM_BETA_1"),
        ("useEMAModel", "USE_EMA_MODEL"),
        ("EPOCHS", "EPOCHS"),
    ],
)
def test_names_of_parameters_become_names_of_variables(parameter: str, variable: str) -> None:
    assert config.variable_name(parameter) == variable


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"BATCH_SIZE": "many"}, "BATCH_SIZE is 'many', but must be a whole number"),
        ({"EPOCHS": "0"}, "EPOCHS is 0, but must be at least 1"),
        ({"LEARNING_RATE": "nan"}, "LEARNING_RATE is nan, but must be finite"),
        ({"OPTIMIZER": "lion"}, "OPTIMIZER is 'lion'"),
        ({"HYPERPARAMETERS": "[1]"}, "HYPERPARAMETERS must be a JSON object"),
        ({"HYPERPARAMETERS": "{"}, "HYPERPARAMETERS is not JSON"),
        ({"WORLD_SIZE": "2", "RANK": "2", "MASTER_ADDR": "a"}, "RANK is 2, but must be below WORLD_SIZE"),
        ({"WORLD_SIZE": "2"}, "MASTER_ADDR is not set"),
        ({"MODEL": " "}, "MODEL is not set"),
        ({"TARGET_METRIC": "bleu", "TARGET_VALUE": "1"}, "TARGET_METRIC is 'bleu'"),
        ({"MIXED_PRECISION": "maybe"}, "MIXED_PRECISION is 'maybe'"),
    ],
)
def test_a_wrong_setting_is_named(setting: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=".*") as raised:
        config.load({**MINIMAL, **setting})
    assert words in str(raised.value)


def test_all_wrong_settings_are_named_at_once() -> None:
    with pytest.raises(UsageError) as raised:
        config.load({"EPOCHS": "x", "RANK": "-1"})
    assert all(name in str(raised.value) for name in ("MODEL", "DATASET", "EPOCHS", "RANK"))


def test_threads_are_shared_between_processes_of_a_replica() -> None:
    assert config.cpu_threads({"OMP_NUM_THREADS": "3"}, 1) == 3
    assert config.cpu_threads({}, 10_000) == 1


def test_each_gpu_gets_a_process_with_its_own_rank() -> None:
    replica = {"WORLD_SIZE": "2", "RANK": "1", "PET_NPROC_PER_NODE": "4", "MASTER_ADDR": "job-master"}
    assert launcher.processes_wanted(replica) == 4
    assert launcher.processes_wanted({**replica, "LOCAL_RANK": "0"}) == 1
    env = launcher.environment(replica, local_rank=3, processes=4)
    assert (env["WORLD_SIZE"], env["RANK"], env["LOCAL_RANK"], env["LOCAL_WORLD_SIZE"]) == ("8", "7", "3", "4")


@pytest.mark.parametrize(
    ("codes", "code"), [([0, 0], 0), ([75, 137], 137), ([0, 75], 75), ([75, -9], 137), ([143, 143], 143)]
)
def test_the_replica_ends_with_the_code_of_the_cause(codes: list[int], code: int) -> None:
    assert launcher.most_telling(codes) == code

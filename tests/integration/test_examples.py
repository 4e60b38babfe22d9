"""The examples, as a user runs them: with the launcher and alone, on real images."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.harness.events import scalars_of

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
HOROVODRUN = str(Path(sys.executable).with_name("horovodrun"))

MIN_ACCURACY = 0.95
RUN_DEADLINE_S = 300
STOP_DEADLINE_S = 15

needs_estimator = pytest.mark.skipif(
    importlib.util.find_spec("tensorflow_estimator") is None,
    reason="this TensorFlow has no Estimator",
)
RUNS = [
    pytest.param(["estimator_digits.py"], id="estimator", marks=needs_estimator),
    pytest.param(["estimator_digits.py", "--use_fp16"], id="fp16", marks=needs_estimator),
    pytest.param(["session_digits.py"], id="monitored"),
    pytest.param(["session_digits.py", "--plain"], id="plain"),
    pytest.param(["tape_digits.py"], id="tape"),
    pytest.param(["local_rank_digits.py"], id="local-rank"),
    pytest.param(["local_rank_digits.py", "--by_hand"], id="by-hand"),
]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that is empty at first, so that the ranks of the first run write it at once."""
    return tmp_path_factory.mktemp("digits")


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    """Runs `command` to its end, or to the deadline; then it is ended and the test fails."""
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            stdout, stderr = process.communicate(timeout=RUN_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.terminate()  # the launcher then ends its ranks, which a kill would not
            try:
                stdout, stderr = process.communicate(timeout=STOP_DEADLINE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                raise
            pytest.fail(f"{command} ran for {RUN_DEADLINE_S} s\n{stdout}\n{stderr}")
    return subprocess.CompletedProcess(command, process.returncode, stdout, stderr)


def _example(arguments: list[str], data_dir: Path, ranks: int | None) -> str:
    """Runs an example on `ranks` ranks, or without launcher if None, and returns its stdout."""
    script, *options = arguments
    command = [sys.executable, str(EXAMPLES / script), *options, "--data_dir", str(data_dir)]
    if ranks is not None:
        command = [HOROVODRUN, "-np", str(ranks), *command]
    done = _run(command)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def _accuracies(stdout: str) -> list[float]:
    return [float(found) for found in re.findall(r"test accuracy: ([\d.]+)$", stdout, re.MULTILINE)]


def _digests(stdout: str) -> list[str]:
    return re.findall(r"weights digest: ([0-9a-f]{16})$", stdout, re.MULTILINE)


def _two_ranks_learn(arguments: list[str], data_dir: Path) -> None:
    stdout = _example(arguments, data_dir, ranks=2)
    (accuracy,) = _accuracies(stdout)
    assert accuracy >= MIN_ACCURACY
    assert re.search(r"seconds: [\d.]+$", stdout, re.MULTILINE)
    digests = _digests(stdout)
    assert len(digests) == 2, stdout
    assert digests[0] == digests[1]


@pytest.mark.parametrize("arguments", RUNS)
def test_two_ranks_learn_the_digits_and_end_with_the_same_weights(
    arguments: list[str], data_dir: Path
) -> None:
    _two_ranks_learn(arguments, data_dir)


def test_the_tensorboard_example_writes_what_tensorboard_reads(
    data_dir: Path, tmp_path: Path
) -> None:
    _two_ranks_learn(["tensorboard_digits.py", "--logdir", str(tmp_path)], data_dir)
    scalars = scalars_of(str(tmp_path))
    steps, losses = zip(*scalars["loss"])
    assert list(steps) == [1 + 100 * place for place in range(len(steps))]
    assert len(steps) > 5 and losses[-1] < 0.2 * losses[0]
    assert [step for step, _ in scalars["global_step/sec"]] == list(steps[1:])


@pytest.mark.parametrize("arguments", [run for run in RUNS if run.id in ("monitored", "plain")])
def test_a_lone_process_learns_the_digits(arguments: list[str], data_dir: Path) -> None:
    stdout = _example(arguments, data_dir, ranks=None)
    (accuracy,) = _accuracies(stdout)
    assert accuracy >= MIN_ACCURACY
    assert len(_digests(stdout)) == 1


def test_steady_training_announces_by_bits_alone(
    data_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it trains, what is announced in full is the same: each tensor once."""
    monkeypatch.setenv("HOROVOD_LOG_LEVEL", "debug")
    in_full, by_number = [], []
    for epochs in ("2", "6"):
        command = [HOROVODRUN, "-np", "2", sys.executable, str(EXAMPLES / "session_digits.py")]
        done = _run([*command, "--epochs", epochs, "--data_dir", str(data_dir)])
        assert done.returncode == 0, done.stdout + done.stderr
        counts = re.findall(r"announced (\d+) tensors in full and (\d+) by their", done.stderr)
        assert len(counts) == 2, done.stderr
        in_full.append({int(full) for full, _ in counts})
        by_number.append(min(int(number) for _, number in counts))
    assert in_full[0] == in_full[1] and len(in_full[0]) == 1, in_full
    assert by_number[1] > 2 * by_number[0] > 0


@needs_estimator
def test_a_checkpoint_of_rank_0_reaches_rank_1(data_dir: Path, tmp_path: Path) -> None:
    """What rank 0 alone can read, all start from: a new training from it knows the digits."""
    trained = str(tmp_path / "trained")
    alone = _example(["estimator_digits.py", "--output_dir", trained], data_dir, ranks=None)
    assert _accuracies(alone)[0] >= MIN_ACCURACY

    # Too few and too small steps to learn anything in.
    few_steps = ["--num_train_epochs", "0.2", "--learning_rate", "1e-6"]
    fresh = _example(["estimator_digits.py", *few_steps], data_dir, ranks=2)
    loaded = _example(
        ["estimator_digits.py", *few_steps, "--init_checkpoint", trained], data_dir, ranks=2
    )

    assert _accuracies(fresh)[0] < 0.5
    assert _accuracies(loaded)[0] >= MIN_ACCURACY
    assert len(set(_digests(loaded))) == 1


@needs_estimator
def test_a_finished_output_dir_ends_every_rank_in_order(data_dir: Path, tmp_path: Path) -> None:
    """Rank 0 alone finds that nothing is left to train; all say so and end in order."""
    one_epoch = [str(EXAMPLES / "estimator_digits.py"), "--num_train_epochs", "1"]
    options = ["--output_dir", str(tmp_path), "--data_dir", str(data_dir)]
    command = [HOROVODRUN, "-np", "2", sys.executable, *one_epoch, *options]
    assert _run(command).returncode == 0

    again = _run(command)

    assert again.returncode == 0, again.stderr
    for rank in range(2):
        assert f"rank {rank}: nothing to train" in again.stdout

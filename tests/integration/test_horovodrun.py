"""horovodrun with real processes: environment, output byte by byte, and what it refuses."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import time

import pytest

from horovod import __version__
from tests.harness.horovodrun import (
    ENDS_WITHIN_S,
    HOROVODRUN,
    PYTHON,
    SLACK,
    assert_gone,
    environment,
    lines_of,
    run,
    running,
)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_each_rank_knows_its_place(size):
    names = [
        "HOROVOD_RANK", "HOROVOD_LOCAL_RANK", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK",
        "PMI_RANK", "HOROVOD_SIZE", "HOROVOD_LOCAL_SIZE", "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE", "HOROVOD_CROSS_RANK", "HOROVOD_CROSS_SIZE",
        "HOROVOD_HOSTNAME", "HOROVOD_LAUNCHER",
    ]  # fmt: skip
    code = f"import os; print(*[os.environ[n] for n in {names}])"
    done = run("-np", size, PYTHON, "-c", code)
    assert done.returncode == 0 and done.stderr == b""
    for rank in range(size):
        want = [*[rank] * 5, *[size] * 5, 0, 1, "localhost", "horovodrun"]
        assert lines_of(rank, done.stdout) == [" ".join(map(str, want)).encode()]


def test_the_ranks_meet():
    code = """
import os
from horovod.common.rendezvous import meet
e = os.environ
rank, size = int(e["HOROVOD_RANK"]), int(e["HOROVOD_SIZE"])
member = dict(version="1", rank=rank, size=size, local_rank=rank, local_size=size, cross_rank=0,
              cross_size=1, hostname="h", endpoints=[], host_id="a", pid=os.getpid())
secret = bytes.fromhex(e["HOROVOD_SECRET_KEY"])
for _ in range(3):
    met = meet(e["HOROVOD_RENDEZVOUS_ADDR"], secret, member, 60)
print(met.generation, len(met.members))
"""
    done = run("-np", 3, PYTHON, "-c", code)
    assert done.returncode == 0, done.stderr
    assert [lines_of(rank, done.stdout) for rank in range(3)] == [[b"3 3"]] * 3


def test_flags_reach_the_ranks_and_the_line_beats_the_file(tmp_path):
    config = tmp_path / "config.yaml"
    config.write_text(
        "num_proc: 2\nparams:\n  fusion_threshold_mb: 3\n  cycle_time_ms: 2.5\n"
        "stall_check:\n  enabled: false\n"
    )
    names = ["FUSION_THRESHOLD", "CYCLE_TIME", "STALL_CHECK_DISABLE", "TRANSPORT"]
    code = f"import os; print(*[os.environ['HOROVOD_' + n] for n in {names}])"
    done = run("--config-file", config, "--fusion-threshold-mb", "1", "--tcp", PYTHON, "-c", code)
    assert done.returncode == 0, done.stderr
    assert lines_of(1, done.stdout) == [b"1048576 2.5 1 tcp"]


def test_standard_input_is_empty():
    done = run("-np", 2, PYTHON, "-c", "print(input.__name__, open(0).read() == '')", input=b"x")
    assert lines_of(0, done.stdout) == lines_of(1, done.stdout) == [b"input True"]


AWKWARD = {
    "invalid UTF-8": b"\xff\xfe\xc3\n",
    "NUL": b"a\0b\n",
    "carriage returns": b"10%\r20%\r30%\r\n",
    "empty lines": b"\n\n\n",
    "looks like a mark": b"[0]<stdout>:x\n",
    "1 MB": b"\xe2\x82\xac" * 350_000 + b"\n",
}


@pytest.mark.parametrize("text", AWKWARD.values(), ids=AWKWARD.keys())
@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_bytes_pass_untouched(text, name, tmp_path):
    (tmp_path / "text").write_bytes(text)
    code = f"import sys; sys.{name}.buffer.write(open(sys.argv[1], 'rb').read())"
    done = run("-np", 2, PYTHON, "-c", code, tmp_path / "text")
    assert done.returncode == 0
    for rank in range(2):
        assert lines_of(rank, getattr(done, name), name) == text.split(b"\n")[:-1]


def test_a_last_line_without_newline_stays_a_line_of_its_own():
    done = run("-np", 3, PYTHON, "-c", "import os; os.write(1, b'first\\nlast')")
    for rank in range(3):
        assert lines_of(rank, done.stdout) == [b"first", b"last"]


def test_split_characters_and_lines_of_two_ranks_do_not_mix():
    code = """
import os, time
for _ in range(20):
    for piece in (b"<\\xe2", b"\\x82", b"\\xac", b">\\n"):
        os.write(1, piece)
        os.write(2, piece)
        time.sleep(0.002)
"""
    done = run("-np", 4, PYTHON, "-c", code)
    for rank in range(4):
        assert lines_of(rank, done.stdout) == ["<€>".encode()] * 20
        assert lines_of(rank, done.stderr, "stderr") == ["<€>".encode()] * 20


def test_long_lines_of_both_outputs_into_one_pipe_do_not_mix():
    code = """
import os
rank = os.environ["HOROVOD_RANK"].encode()
for i in range(5):
    os.write(1, rank * 300_000 + b"\\n")
    os.write(2, rank * 300_000 + b"\\n")
"""
    done = subprocess.run(
        [*HOROVODRUN, "-np", "2", PYTHON, "-c", code], env=environment(), stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=120, check=False,
    )  # fmt: skip
    for rank in range(2):
        for name in ("stdout", "stderr"):
            lines = lines_of(rank, done.stdout, name)
            assert lines == [str(rank).encode() * 300_000] * 5
    assert done.stdout.count(b"\n") == 20


def test_a_slow_reader_loses_nothing():
    code = "import os\nfor i in range(40): os.write(1, b'%06d' % i * 20_000 + b'\\n')"
    with running("-np", 2, PYTHON, "-c", code) as process:
        time.sleep(2.0)
        output = process.stdout.read()
        assert process.wait(60) == 0
    for rank in range(2):
        assert lines_of(rank, output) == [b"%06d" % i * 20_000 for i in range(40)]


def test_a_reader_that_went_away_ends_an_endless_writer():
    with running("-np", 2, "yes") as process:
        process.stdout.readline()
        process.stdout.close()
        assert process.wait(60) == 128 + signal.SIGPIPE
        process.stdout = None  # communicate() would read it


def test_a_reader_that_went_away_does_not_hurt_a_quiet_rank():
    with running("-np", 1, PYTHON, "-c", "import time; print(1); time.sleep(1)") as process:
        process.stdout.close()
        process.stdout = None
        assert process.wait(60) == 0


def test_a_stopped_reader_does_not_keep_signals_out(mark):
    code = "while True: print('x' * 1000)"
    with running("-np", 2, PYTHON, "-c", code, mark) as process:
        process.stdout.readline()
        time.sleep(1.0)
        process.send_signal(signal.SIGTERM)
        assert process.wait(ENDS_WITHIN_S * SLACK) == 128 + signal.SIGTERM
        assert_gone(mark, 0)


def test_closed_standard_output_and_error():
    for redirect in (">&-", "2>&-", ">&- 2>&-"):
        command = " ".join(map(repr, [*HOROVODRUN, "-np", "2", "bash", "-c", "echo a; exit 3"]))
        done = subprocess.run(
            ["bash", "-c", f"{command} {redirect}"], env=environment(), capture_output=True,
            timeout=60, check=False,
        )  # fmt: skip
        assert done.returncode == 3


def test_progress_bars_move_on_a_terminal():
    code = r"import os, time; os.write(1, b'10%\r20%'); time.sleep(600)"
    ours, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            [*HOROVODRUN, "-np", "1", PYTHON, "-c", code], env=environment(), stdout=theirs,
            stderr=subprocess.PIPE,
        )  # fmt: skip
        try:
            assert os.read(ours, 4096) == b"[0]<stdout>:10%\r"
        finally:
            process.terminate()
            process.communicate(timeout=60)
    finally:
        os.close(ours)
        os.close(theirs)


def test_output_files_and_timestamps(tmp_path):
    code = "import os, sys; os.write(1, b'out\\r\\n\\xff'); print('err', file=sys.stderr)"
    done = run(
        "-np", 11, "--output-filename", tmp_path / "logs", "-prefix-timestamp", PYTHON, "-c", code
    )
    assert done.returncode == 0
    for rank in range(11):
        folder = tmp_path / "logs" / f"rank.{rank:02d}"
        assert (folder / "stdout").read_bytes() == b"out\r\n\xff"
        assert (folder / "stderr").read_bytes() == b"err\n"
    line = done.stdout.split(b"\n")[0]
    time.strptime(line.partition(b"[")[0].decode(), "%a %b %d %H:%M:%S %Y")


def test_a_command_that_does_not_exist():
    done = run("-np", 2, "no-such-command-here")
    assert done.returncode == 127 and b"no-such-command-here: command not found" in done.stderr


def test_a_file_that_cannot_be_run(tmp_path):
    file = tmp_path / "program"
    file.write_text("#!/no/such/interpreter\n")
    assert run("-np", 1, file).returncode == 126
    file.chmod(0o755)
    done = run("-np", 1, file)
    assert done.returncode == 127 and str(file).encode() in done.stderr


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-np", "0", "true"], ["-np 0", "at least 1"]),
        (["-np", "-3", "true"], ["-3", "at least 1"]),
        (["-np", "3", "-H", "localhost:2", "true"], ["-np 3", "2 slots"]),
        (["-np", "2", "-H", "elsewhere.invalid:2", "true"], ["elsewhere.invalid", "not built yet"]),
        (["-np", "2", "--mpi", "true"], ["--mpi", "not built yet"]),
        (["-np", "2", "--min-np", "1", "true"], ["--min-np", "not built yet"]),
        (["-np", "2"], ["no command"]),
    ],
    ids=lambda value: " ".join(value),
)
def test_faults_in_the_options(args, words):
    done = run(*args)
    assert done.returncode == 2 and done.stdout == b""
    for word in words:
        assert word.encode() in done.stderr


def test_version_and_build():
    assert run("--version").stdout.decode().strip() == __version__
    assert b"TensorFlow" in run("-cb").stdout


def test_a_misspelt_knob_is_named_once():
    done = run("-np", 2, "true", wrapper=["env", "HOROVOD_FUSION_TRESHOLD=1", "HOROVOD_OTHER=1"])
    assert done.returncode == 0
    assert done.stderr.splitlines() == [
        b"horovodrun: HOROVOD_FUSION_TRESHOLD is set, and nothing reads it; "
        b"HOROVOD_FUSION_THRESHOLD was probably meant"
    ]

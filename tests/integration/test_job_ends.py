"""Every way in which a job ends: what is reported, and that nothing of it is left."""

from __future__ import annotations

import functools
import signal
import time

import pytest

from tests.harness.horovodrun import (
    ENDS_WITHIN_S,
    HOROVODRUN,
    PYTHON,
    SLACK,
    assert_gone,
    lines_of,
    living,
    run,
    running,
    wait_for_lines,
)

# What a rank runs where it shall have a family: a child in its session, one in a process group of
# its own, and one in a session of its own; all hold the mark on their command lines.
FAMILY = """
import subprocess, sys, time
command = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
subprocess.Popen(command)
subprocess.Popen(["bash", "-c", "set -m; " + " ".join(map(repr, command)) + " & wait", sys.argv[1]])
subprocess.Popen(command, start_new_session=True)
time.sleep(0.3)
print("up", flush=True)
"""
STAYS = FAMILY + "time.sleep(600)"
# Those that are harder to find or to end: a deaf grandchild that left session and environment
# behind and soon loses its parent, one that is stopped, and a child that starts another one when it
# is told to end.
HARD = r"""
import signal, subprocess, sys, time
command = [sys.executable, "-c", "import time; time.sleep(600)", sys.argv[1]]
middle = (
    "import signal, subprocess, sys, time\n"
    "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    "subprocess.Popen(sys.argv[1:], env={}, start_new_session=True)\n"
    "signal.signal(signal.SIGTERM, signal.SIG_DFL)\n"
    "time.sleep(600)"
)
again = (
    "import signal, subprocess, sys, time\n"
    "start = lambda *_: subprocess.Popen(sys.argv[1:], start_new_session=True)\n"
    "signal.signal(signal.SIGTERM, start)\n"
    "while True: time.sleep(600)"
)
for code in (middle, again):
    subprocess.Popen([sys.executable, "-c", code, *command])
subprocess.Popen(command, start_new_session=True).send_signal(signal.SIGSTOP)
time.sleep(1)
print("up", flush=True)
time.sleep(600)
"""
DEAF = (
    "import signal\n"
    "for s in (signal.SIGINT, signal.SIGTERM): signal.signal(s, signal.SIG_IGN)\n" + STAYS
)


@pytest.mark.parametrize("size", [1, 2, 4])
def test_the_failing_rank_and_its_status_are_named_last(size):
    code = "import os, time\nif os.environ['HOROVOD_RANK'] == '0': os._exit(41)\ntime.sleep(600)"
    start_s = time.monotonic()
    done = run("-np", size, PYTHON, "-c", code)
    assert time.monotonic() - start_s < ENDS_WITHIN_S * SLACK
    assert done.returncode == 41
    last = done.stderr.rstrip().split(b"\n")[-1]
    assert b"rank 0" in last and b"exit code 41" in last
    if size > 1:
        assert b"killed by SIGTERM (signal 15), by horovodrun" in done.stderr


def test_survivors_may_say_what_they_lost_and_each_code_is_reported():
    code = """
import os, signal, sys, time
rank = os.environ["HOROVOD_RANK"]
if rank == "1":
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(1)
sys.exit("rank 1 was lost")
"""
    done = run("-np", 3, PYTHON, "-c", code)
    assert done.returncode == 128 + signal.SIGKILL
    assert b"[0]<stderr>:rank 1 was lost" in done.stderr
    *_, table, last = done.stderr.rstrip().split(b"\n")
    assert b"rank 0: exit code 1; rank 1: killed by SIGKILL (signal 9); rank 2: exit" in table
    assert b"rank 1 failed first: killed by SIGKILL (signal 9)" in last


def test_a_failure_ends_ranks_that_do_not_listen_with_their_families(mark):
    code = (
        f"import os, time\nif os.environ['HOROVOD_RANK'] == '1': time.sleep(2); os._exit(3)\n{DEAF}"
    )
    done = run("-np", 2, PYTHON, "-c", code, mark)
    assert done.returncode == 3
    assert_gone(mark, 0)


def test_a_failure_ends_a_family_that_is_hard_to_find(mark):
    code = (
        f"import os, time\nif os.environ['HOROVOD_RANK'] == '1': time.sleep(3); os._exit(3)\n{HARD}"
    )
    done = run("-np", 2, PYTHON, "-c", code, mark)
    assert done.returncode == 3
    assert_gone(mark, 0)


def test_a_rank_that_ends_early_in_order_does_not_end_the_job():
    code = """
import os, time
if os.environ["HOROVOD_RANK"] == "1":
    time.sleep(3)
    print("done")
"""
    done = run("-np", 3, PYTHON, "-c", code)
    assert done.returncode == 0 and done.stderr == b""
    assert lines_of(1, done.stdout) == [b"done"]


def test_the_report_gives_each_ranks_own_end(tmp_path):
    code = """
import os, signal, sys, time
rank, file = os.environ["HOROVOD_RANK"], sys.argv[1] + "/pid"
if rank == "1":
    while not os.path.exists(file):
        time.sleep(0.02)
    os.rename(file, file + "1")
    os._exit(3)
elif rank == "2":
    open(file, "w").close()
    while not os.path.exists(file + "1"):
        time.sleep(0.02)
    time.sleep(1)
    os.kill(os.getpid(), signal.SIGUSR1)
"""
    done = run("-np", 3, PYTHON, "-c", code, tmp_path)
    assert done.returncode == 3
    *_, table, last = done.stderr.splitlines()
    assert table == (
        b"horovodrun: rank 0: exit code 0; rank 1: exit code 3; "
        b"rank 2: killed by SIGUSR1 (signal 10)"
    )
    assert b"rank 1 failed first: exit code 3" in last


# Ranks 0 and 2 wait in init() for rank 1, which is not to come; they say what they were told.  With
# a folder rank 1 ends once they wait, without one at once.
WAITS = """
import os, sys, time
from horovod.common import basics
from horovod.common.exceptions import HorovodInternalError
rank, rounds, ending, folder = os.environ["HOROVOD_RANK"], int(sys.argv[1]), *sys.argv[2:]
for _ in range(rounds):
    basics.init()
    basics.shutdown()
if rank == "1":
    while folder and len(os.listdir(folder)) < 2:
        time.sleep(0.02)
    time.sleep(0.3)
    exec(ending)
if folder:
    open(f"{folder}/{rank}", "w").close()
elif rank == "2":
    time.sleep(1)
begin_s = time.monotonic()
try:
    basics.init()
except HorovodInternalError as error:
    print(error)
    print(time.monotonic() - begin_s)
"""
AT_ONCE_S = 3.0 * SLACK


def check_what_they_were_told(how, rounds, output):
    when = "after an earlier init()" if rounds else "before init()"
    for rank in (0, 2):
        text, seconds = lines_of(rank, output)
        assert f"rank 1 ended {when} and cannot come (rank 1: {how})" in text.decode()
        assert b"see what rank 1 printed last" in text
        assert float(seconds) < AT_ONCE_S


@pytest.mark.parametrize("rounds", [0, 2], ids=["first init", "third init"])
@pytest.mark.parametrize(
    ("ending", "how"),
    [
        ("sys.exit(0)", "exit code 0"),
        ("sys.exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 9)", "killed by SIGKILL (signal 9)"),
    ],
    ids=["0", "3", "killed"],
)
def test_those_who_wait_in_init_for_a_rank_that_ended_are_told(ending, how, rounds, tmp_path):
    done = run("-np", 3, PYTHON, "-c", WAITS, rounds, ending, tmp_path)
    check_what_they_were_told(how, rounds, done.stdout)


@pytest.mark.parametrize("rounds", [0, 2], ids=["first init", "third init"])
def test_those_who_come_later_are_told_too(rounds):
    done = run("-np", 3, PYTHON, "-c", WAITS, rounds, "sys.exit(0)", "")
    check_what_they_were_told("exit code 0", rounds, done.stdout)


def test_what_ranks_leave_running_is_ended(mark):
    done = run("-np", 2, "--verbose", PYTHON, "-c", FAMILY, mark)
    assert done.returncode == 0
    assert b"left" in done.stderr
    assert_gone(mark, 0)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_everything(signum, mark):
    # Whatever runs the tests may ignore it; the launcher would then, as nohup wants.
    heed = functools.partial(signal.signal, signum, signal.SIG_DFL)
    with running("-np", 2, PYTHON, "-c", STAYS, mark, preexec_fn=heed) as process:
        wait_for_lines(process, 2)
        process.send_signal(signum)
        assert process.wait(ENDS_WITHIN_S * SLACK) == 128 + signum
        assert_gone(mark, 0)
        assert process.stderr.read().rstrip().endswith(f"ended by {signum.name}".encode())


def test_nohup_is_heeded():
    ignore = functools.partial(signal.signal, signal.SIGHUP, signal.SIG_IGN)
    code = "import time; print(1, flush=True); time.sleep(1)"
    with running("-np", 1, PYTHON, "-c", code, preexec_fn=ignore) as process:
        wait_for_lines(process, 1)
        process.send_signal(signal.SIGHUP)
        assert process.wait(60) == 0


def test_a_second_signal_does_not_wait(mark):
    with running("-np", 2, PYTHON, "-c", DEAF, mark) as process:
        wait_for_lines(process, 2)
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        assert process.wait(ENDS_WITHIN_S * SLACK) == 128 + signal.SIGINT
        assert_gone(mark, 0)


@pytest.mark.parametrize("code", [STAYS, DEAF, HARD], ids=["listens", "deaf", "hard"])
def test_nothing_outlives_a_killed_launcher(code, mark):
    with running("-np", 2, PYTHON, "-c", code, mark) as process:
        wait_for_lines(process, 2)
        assert len(living(mark)) >= 8
        process.kill()
        assert_gone(mark, 10 * SLACK)


def test_a_launcher_killed_while_it_starts_leaves_nothing(mark):
    for delay_s in (0.0, 0.05, 0.1, 0.15, 0.2, 0.3):
        with running("-np", 4, PYTHON, "-c", STAYS, mark) as process:
            time.sleep(delay_s)
            process.kill()
            process.wait()
            assert_gone(mark, 10 * SLACK)


def test_a_job_within_a_rank_ends_with_it(mark):
    inner = [*HOROVODRUN, "-np", "2", PYTHON, "-c", STAYS, mark]
    code = f"import subprocess; subprocess.run({inner!r})"
    with running("-np", 1, PYTHON, "-c", code) as process:
        wait_for_lines(process, 2)
        process.kill()
        assert_gone(mark, 10 * SLACK)

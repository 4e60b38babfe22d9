"""horovodrun's options, --config-file, hosts and knobs."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from horovod.runner import descriptors, options
from horovod.runner.config_file import ConfigFileError, flags_from_config, read_config_file
from horovod.runner.descriptors import descriptor_fault
from horovod.runner.environment import OWN_VARIABLES, rank_environment
from horovod.runner.hosts import Host, HostsError, only_local, parse_hostfile, parse_hosts
from horovod.runner.knobs import SWITCHES, VALUES, knob_fault
from horovod.runner.misspelt import misspelt
from horovod.runner.options import parse_options


class Knob(NamedTuple):
    """As the build generates them."""

    id: str
    env: str
    type: str
    default: object
    minimum: float
    maximum: float
    unit: str
    help: str


@pytest.fixture(autouse=True)
def no_knob_table(monkeypatch):
    """These tests are of the options, not of what the core beside them has."""
    monkeypatch.setattr(options, "knob_table", lambda: None)


def refused(capsys, *argv):
    with pytest.raises(SystemExit) as caught:
        parse_options(argv)
    assert caught.value.code == 2
    return capsys.readouterr().err


def test_the_command_keeps_its_own_flags():
    got = parse_options(["-np", "2", "--verbose", "python", "t.py", "-np", "7", "--mpi", "--", "x"])
    assert got.size == 2 and got.verbose
    assert got.command == ["python", "t.py", "-np", "7", "--mpi", "--", "x"]
    assert parse_options(["-np", "2", "--", "python", "-v"]).command == ["python", "-v"]


@pytest.mark.parametrize("flags", [["-np", "2"], ["--num-proc", "2"], ["--num-proc=2"]])
def test_the_number_of_ranks(flags):
    got = parse_options([*flags, "true"])
    assert (got.size, got.hostname) == (2, "localhost")


@pytest.mark.parametrize(
    ("flags", "size", "hostname"),
    [
        (["-H", "localhost:3"], 3, "localhost"),
        (["-H", "localhost:3", "-np", "2"], 2, "localhost"),
        (["--hosts", "127.0.0.1"], 1, "127.0.0.1"),
    ],
)
def test_hosts_give_the_number_when_it_is_not_given(flags, size, hostname):
    got = parse_options([*flags, "true"])
    assert (got.size, got.hostname) == (size, hostname)


def test_hostfile(tmp_path):
    file = tmp_path / "hosts"
    file.write_text("# mine\n\nlocalhost slots=4  # four\n")
    assert parse_hostfile(str(file)) == [Host("localhost", 4)]
    assert parse_options(["-hostfile", str(file), "true"]).size == 4
    file.write_text("# none\n")
    with pytest.raises(HostsError, match="has no host"):
        parse_hostfile(str(file))
    file.write_text("localhost slots=x\n")
    with pytest.raises(HostsError, match="line 1"):
        parse_hostfile(str(file))
    with pytest.raises(HostsError, match="cannot be read"):
        parse_hostfile(str(tmp_path / "none"))


@pytest.mark.parametrize(
    ("text", "hosts"),
    [
        ("a:2,b:3", [Host("a", 2), Host("b", 3)]),
        ("a", [Host("a", 1)]),
        ("[::1]:2", [Host("::1", 2)]),
    ],
)
def test_parse_hosts(text, hosts):
    assert parse_hosts(text) == hosts


@pytest.mark.parametrize("text", ["", "a:", "a:0", "a:x", "a:1:2", ",a"])
def test_bad_hosts(text):
    with pytest.raises(HostsError, match="-H"):
        parse_hosts(text)


def test_several_hosts_are_not_built_yet():
    with pytest.raises(HostsError, match="not built yet"):
        only_local([Host("localhost", 1), Host("other", 1)])


@pytest.mark.parametrize(
    ("argv", "knobs"),
    [
        (["--fusion-threshold-mb", "64"], {"HOROVOD_FUSION_THRESHOLD": "67108864"}),
        (["--fusion-threshold-mb", "0.5"], {"HOROVOD_FUSION_THRESHOLD": "524288"}),
        (["--cycle-time-ms", "3.5"], {"HOROVOD_CYCLE_TIME": "3.5"}),
        (["--log-level", "DEBUG"], {"HOROVOD_LOG_LEVEL": "debug"}),
        (["--no-stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "1"}),
        (["--no-stall-check", "--stall-check"], {"HOROVOD_STALL_CHECK_DISABLE": "0"}),
        (["--gloo"], {"HOROVOD_TRANSPORT": "tcp"}),
        (["--start-timeout", "9"], {"HOROVOD_START_TIMEOUT_SECONDS": "9"}),
        (["--disable-cache", "--no-hierarchical-allreduce"], {}),
    ],
)
def test_knobs(argv, knobs):
    assert parse_options(["-np", "1", *argv, "true"]).knobs == knobs


@pytest.mark.parametrize("argv", [["--cycle-time-ms", "x"], ["--fusion-threshold-mb", "inf"]])
def test_a_knob_that_is_no_number(capsys, argv):
    assert f"{argv[0]}: '{argv[1]}' is not a number" in refused(capsys, "-np", "1", *argv, "true")


def test_knobs_are_checked_against_the_core_that_is_there(capsys, monkeypatch):
    knob = Knob("cycle_time_ms", "HOROVOD_CYCLE_TIME", "DOUBLE", 0, 0, 10000, "ms", "")
    monkeypatch.setattr(options, "knob_table", lambda: {knob.env: knob})
    assert parse_options(["-np", "1", "--cycle-time-ms", "1", "true"]).knobs
    text = refused(capsys, "-np", "1", "--cycle-time-ms", "-1", "true")
    assert "HOROVOD_CYCLE_TIME would be -1 ms" in text and "at least 0" in text
    text = refused(capsys, "-np", "1", "--timeline-filename", "t", "true")
    assert "--timeline-filename: not built yet" in text


def test_a_text_knob_has_no_range():
    knob = Knob("log_level", "HOROVOD_LOG_LEVEL", "STRING", "", 0, 0, "", "")
    assert knob_fault("--log-level", knob.env, "info", {knob.env: knob}) is None


def test_no_flag_has_two_rows():
    flags = [row.flag for row in (*VALUES, *SWITCHES)]
    assert len(flags) == len(set(flags))


@pytest.mark.parametrize("row", options._NOT_BUILT, ids=lambda row: row[0][-1])
def test_what_is_not_built_is_refused_by_name(capsys, row):
    flags, has_value, what = row
    for flag in flags:
        argv = [flag, "1"] if has_value else [flag]
        text = refused(capsys, "-np", "1", *argv, "true")
        assert f"{flag}: {what}: not built yet" in text


def test_help_has_what_is_not_built_under_a_heading_of_its_own(capsys, monkeypatch):
    knob = Knob("cycle_time_ms", "HOROVOD_CYCLE_TIME", "DOUBLE", 0, 0, 10000, "ms", "")
    monkeypatch.setattr(options, "knob_table", lambda: {knob.env: knob})
    with pytest.raises(SystemExit) as caught:
        parse_options(["--help"])
    assert caught.value.code == 0
    built, later = capsys.readouterr().out.split("not built yet; each is refused")
    assert "--cycle-time-ms" in built and "--cycle-time-ms" not in later
    for flag in ("--timeline-filename", "--mpi-args", "--autotune", "--min-np"):
        assert flag in later and f"{flag} " not in built


KNOWN = {"HOROVOD_FUSION_THRESHOLD", "HOROVOD_CYCLE_TIME", "HOROVOD_CPU_OPERATIONS", "HOROVOD_RANK"}


@pytest.mark.parametrize(
    ("variable", "knob"),
    [
        ("HOROVOD_FUSION_TRESHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("HOROVOD_FUSION_THRESHHOLD", "HOROVOD_FUSION_THRESHOLD"),
        ("HOROVOD_CYCLETIME", "HOROVOD_CYCLE_TIME"),
        ("horovod_cycle_time", "HOROVOD_CYCLE_TIME"),
        ("HOROVOD_CYCLE_TIME", None),
        ("HOROVOD_GPU_OPERATIONS", None),
        ("HOROVOD_WITH_TENSORFLOW", None),
        ("HOROVOD_", None),
        ("FUSION_THRESHOLDS", None),
    ],
)
def test_only_a_near_miss_of_a_knob_is_called_misspelt(variable, knob):
    assert misspelt([variable, "PATH"], KNOWN) == ([(variable, knob)] if knob else [])


def test_the_launchers_own_variables_are_all_listed():
    made = rank_environment(
        {}, rank=0, size=1, hostname="h", rendezvous_address="", secret=b"", job_id=""
    )
    assert {name for name in made if name.startswith("HOROVOD_")} == OWN_VARIABLES


@pytest.mark.parametrize(
    ("size", "copies", "allowed", "fits"),
    [(4, False, 64, True), (30, False, 64, False), (8, True, 64, True), (13, True, 64, False),
     (10_000, True, -1, True)],
)  # fmt: skip
def test_descriptors_are_counted_before_the_start(monkeypatch, size, copies, allowed, fits):
    monkeypatch.setattr(descriptors.resource, "getrlimit", lambda _: (allowed, allowed))
    fault = descriptor_fault(size, copies=copies)
    assert (fault is None) == fits
    assert fits or (f"-np {size}" in fault and f"allows {allowed}" in fault)


@pytest.mark.parametrize(
    ("argv", "words"),
    [
        (["true"], "how many ranks"),
        (["-np", "1"], "no command"),
        (["-np", "1", "-H", "localhost", "-hostfile", "f", "true"], "give one"),
        (["-np", "1", "--config-file", "/no/such/file", "true"], "--config-file /no/such/file"),
        (["-np", "x", "true"], "invalid int value"),
    ],
)
def test_faults(capsys, argv, words):
    assert words in refused(capsys, *argv)


def test_config_file_sections():
    assert flags_from_config(
        {
            "num_proc": 2,
            "verbose": True,
            "params": {"fusion_threshold_mb": 32, "cache_capacity": 8},
            "timeline": {"filename": "t.json", "mark_cycles": False},
            "stall_check": {"enabled": False, "warning_time_seconds": 5},
            "logging": {"level": "INFO", "hide_timestamp": True},
            "library_options": {"thread_affinity": None},
        }
    ) == [
        "--num-proc=2",
        "--verbose",
        "--fusion-threshold-mb=32",
        "--cache-capacity=8",
        "--timeline-filename=t.json",
        "--no-timeline-mark-cycles",
        "--no-stall-check",
        "--stall-check-warning-time-seconds=5",
        "--log-level=INFO",
        "--log-without-timestamp",
    ]


def test_the_command_line_beats_the_config_file(tmp_path, capsys):
    file = tmp_path / "c.yaml"
    file.write_text("np: 3\nparams: {cycle_time_ms: 1}\n")
    got = parse_options(["--config-file", str(file), "--cycle-time-ms", "2", "true"])
    assert got.size == 3 and got.knobs == {"HOROVOD_CYCLE_TIME": "2"}
    file.write_text("no_such_key: 3\n")
    assert "--no-such-key" in refused(capsys, "-np", "1", "--config-file", str(file), "true")


@pytest.mark.parametrize("text", ["- 1\n", "a: [1]\n", "a: {b: 1}\n", "a: b: c\n"])
def test_bad_config_files(tmp_path, text):
    file = tmp_path / "c.yaml"
    file.write_text(text)
    with pytest.raises(ConfigFileError, match="--config-file"):
        read_config_file(str(file))


def test_an_empty_config_file_is_no_flags(tmp_path):
    (tmp_path / "c.yaml").write_text("")
    assert read_config_file(str(tmp_path / "c.yaml")) == []

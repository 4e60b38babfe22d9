"""Where a process believes to stand, by its environment."""

from __future__ import annotations

import pytest

from horovod.common.place import place_from_environment

OURS = {
    "HOROVOD_RANK": "1",
    "HOROVOD_SIZE": "2",
    "HOROVOD_LOCAL_RANK": "1",
    "HOROVOD_LOCAL_SIZE": "2",
    "HOROVOD_RENDEZVOUS_ADDR": "127.0.0.1:1234",
    "HOROVOD_SECRET_KEY": "00ff",
    "HOROVOD_HOSTNAME": "h",
}


def test_without_a_launcher_a_process_is_alone() -> None:
    place = place_from_environment({})
    assert (place.rank, place.size, place.rendezvous) == (0, 1, "")


def test_the_launchers_variables_are_read() -> None:
    place = place_from_environment(OURS)
    assert (place.rank, place.size, place.local_rank, place.local_size) == (1, 2, 1, 2)
    assert (place.cross_rank, place.cross_size) == (0, 1)
    assert (place.hostname, place.rendezvous, place.secret) == ("h", "127.0.0.1:1234", b"\0\xff")


@pytest.mark.parametrize(
    "env",
    [
        {"OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_RANK": "0"},
        {"PMI_SIZE": "4"},
        {"SLURM_NTASKS": "2", "SLURM_PROCID": "0"},
        {"PMIX_RANK": "0"},
        {"PMIX_RANK": "1"},
        {"MPI_LOCALNRANKS": "2"},
        {"PMI_SIZE": "1", "SLURM_NTASKS": "3"},
    ],
    ids=str,
)
def test_a_launcher_that_is_not_understood_is_refused(
    env: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(RuntimeError, match="horovodrun") as error:
        place_from_environment(env)
    assert str(error.value) in capsys.readouterr().err


@pytest.mark.parametrize(
    "env",
    [
        {"OMPI_COMM_WORLD_SIZE": "1", "PMIX_RANK": "0"},
        {"SLURM_NTASKS": "1", "SLURM_PROCID": "0"},
        {"SLURM_NTASKS": "4", "HOROVOD_RANK": "0", "HOROVOD_SIZE": "1"},
    ],
    ids=str,
)
def test_a_job_of_one_is_alone_under_any_launcher(env: dict[str, str]) -> None:
    assert place_from_environment(env).size == 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"HOROVOD_RANK": "two"}, "HOROVOD_RANK is 'two'"),
        ({"HOROVOD_RANK": "2"}, "HOROVOD_RANK=2"),
        ({"HOROVOD_RANK": "-1"}, "HOROVOD_RANK=-1"),
        ({"HOROVOD_SIZE": ""}, "HOROVOD_SIZE is ''"),
        ({"HOROVOD_LOCAL_RANK": "5"}, "HOROVOD_LOCAL_RANK=5"),
        ({"HOROVOD_CROSS_RANK": "1"}, "HOROVOD_CROSS_RANK=1"),
        ({"HOROVOD_SECRET_KEY": "xyz"}, "HOROVOD_SECRET_KEY"),
        ({"HOROVOD_RENDEZVOUS_ADDR": ""}, "HOROVOD_RENDEZVOUS_ADDR"),
        ({"HOROVOD_RENDEZVOUS_ADDR": "here"}, "HOROVOD_RENDEZVOUS_ADDR"),
        ({"HOROVOD_RANK": "\u0661"}, "HOROVOD_RANK is"),  # a digit, but not one of ours
        ({"HOROVOD_SIZE": "99999999"}, "HOROVOD_SIZE=99999999 is more than"),
        ({"HOROVOD_CROSS_SIZE": "2"}, "HOROVOD_CROSS_RANK is not set, but HOROVOD_CROSS_SIZE=2"),
        ({"HOROVOD_HOSTNAME": "a b"}, "HOROVOD_HOSTNAME is 'a b'"),
    ],
    ids=str,
)
def test_a_contradiction_names_variable_and_value(change: dict[str, str], words: str) -> None:
    with pytest.raises(ValueError, match="init") as error:
        place_from_environment({**OURS, **change})
    assert words in str(error.value)

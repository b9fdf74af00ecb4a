"""Settings: from the environment and `.env`, checked, with one clear line when wrong."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slicelock.errors import ConfigurationError
from slicelock.exits import UsageError
from slicelock.settings import AgentSettings, Mode, Settings, SimSettings, StoreSettings

EVERY = (StoreSettings, Settings, SimSettings, AgentSettings)


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without a `.env`."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_defaults_are_those_of_the_design() -> None:
    settings = Settings.load()
    assert (settings.lease, settings.renew, settings.poll_s) == (60.0, 5.0, 3.0)
    assert (settings.mode, settings.lane, settings.members, settings.priority) == (Mode.ON, "main", "1", 0)
    agent = AgentSettings.load()
    assert (agent.beat, agent.silent, agent.hook_deadline) == (1.0, 10.0, 120.0)
    assert agent.fallback == ("hooks", "cuda")


def test_the_environment_wins_over_the_file_and_arguments_over_both(
    elsewhere: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (elsewhere / ".env").write_text("SLICELOCK_JOB=from-file\nSLICELOCK_LANE=from-file\nOTHER=1\n")
    monkeypatch.setenv("SLICELOCK_LANE", "from-environment")
    settings = Settings.load(member="3", run=None)
    assert (settings.job, settings.lane, settings.member) == ("from-file", "from-environment", "3")


def test_an_empty_variable_is_no_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_JOB", "")
    assert Settings.load().job is None


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"\xff\xfe", "not UTF-8 text"),
        (b"# mine\nSLICELOCK_JOB=a\ngarbage no equals\n", "line 3 is not NAME=VALUE"),
        (b"#" * 2_000_000, "its 2 MB are too many for settings"),
    ],
)
def test_a_broken_file_is_named(elsewhere: Path, content: bytes, why: str) -> None:
    (elsewhere / ".env").write_bytes(content)
    with pytest.raises(ConfigurationError, match=rf"^The settings file {elsewhere}/\.env .*{why}") as caught:
        Settings.load()
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(elsewhere: Path) -> None:
    (elsewhere / ".env").symlink_to("/proc/self/mem")  # is there, and gives an error to everyone who reads it
    with pytest.raises(ConfigurationError, match=r"\.env cannot be read: Input/output error\."):
        StoreSettings.load()


@pytest.mark.parametrize(
    "name",
    [
        "SLICELOCK_REDIS_PASSWORD_FILE",
        "SLICELOCK_SENTINEL_PASSWORD_FILE",
        "SLICELOCK_TLS_CA",
        "SLICELOCK_TLS_CERT",
        "SLICELOCK_TLS_KEY",
        "SLICELOCK_SIM_DIR",
        "SLICELOCK_STATE_DIR",
        "SLICELOCK_CUDA_CHECKPOINT",
    ],
)
def test_a_path_that_can_be_none_is_named(elsewhere: Path, name: str) -> None:
    (elsewhere / ".env").write_text(f"{name}=/tmp/a\0b\n")
    with pytest.raises(ConfigurationError, match=rf"^{name}: .*null byte.*[Cc]orrect") as caught:
        AgentSettings.load()
    assert str(caught.value).isprintable()


def test_everything_that_such_files_have_is_read(elsewhere: Path) -> None:
    (elsewhere / ".env").write_text("# mine\n\nexport SLICELOCK_JOB='a'  # why\nLONG=\"x\ny\"\nBARE\n")
    assert Settings.load().job == "a"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("JOB", "a b"),
        ("RUN", "a/b"),
        ("LANE", "-x"),
        ("MEMBER", "é"),
        ("POOL", "a:{b}"),
        ("MEMBERS", "0"),
        ("MEMBERS", "many"),
        ("PRIORITY", "11"),
        ("LEASE", "0.1"),
        ("RENEW", "0"),
        ("MODE", "maybe"),
        ("STORE_TIMEOUT", "0"),
    ],
)
def test_a_bad_value_names_its_variable(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SLICELOCK_{name}", value)
    with pytest.raises(ConfigurationError, match=f"SLICELOCK_{name}: ") as caught:
        Settings.load()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("PRIORITY", "11", "a whole number, -10 or more, at most 10"),
        ("STORE_TIMEOUT", "soon", "a number, more than 0, at most 60"),
        ("WAIT_REPLICAS", "x", "a whole number, 0 or more, at most 9"),
        ("MODE", "maybe", "one of on, off, observe, always-evict"),
        ("LOG_LEVEL", "loud", "one of debug, info, warning, error"),
        ("HOST_POOL", "lots", "a size, for example 40GiB, more than 0"),
        ("NO_NCCL", "2", "true or false"),
    ],
)
def test_a_bad_value_is_told_with_what_is_allowed(
    name: str, value: str, allowed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"SLICELOCK_{name}", value)
    with pytest.raises(ConfigurationError) as caught:
        Settings.load()
    assert str(caught.value) == f"SLICELOCK_{name}: {value!r} is not allowed; use {allowed}."


@pytest.mark.parametrize(
    "name",
    [
        "REDIS_USER",
        "REDIS_PASSWORD",
        "REDIS_PASSWORD_FILE",
        "SENTINEL_USER",
        "SENTINEL_PASSWORD",
        "SENTINEL_PASSWORD_FILE",
        "FALLBACK",
        "ALLOW_UIDS",
    ],
)
def test_what_is_not_utf_8_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(f"SLICELOCK_{name}", "/\udcff")
    with pytest.raises(ConfigurationError, match=f"SLICELOCK_{name}: .*(not|no) ") as caught:
        AgentSettings.load()
    str(caught.value).encode()


def test_every_setting_is_explained_in_our_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its type: pydantic's own words and the values of secrets show nowhere."""
    for kind in EVERY:
        for name in kind.model_fields:
            monkeypatch.setenv(f"SLICELOCK_{name.upper()}", "-77 no:thing")
            try:
                kind.load()
            except ConfigurationError as error:
                said = str(error)
                assert f"SLICELOCK_{name.upper()}" in said
                assert not re.search(r"Input should|Value error|unable to|could not|this setting takes", said)
            monkeypatch.delenv(f"SLICELOCK_{name.upper()}")


def test_what_an_option_gives_is_blamed_on_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"^--fallback: foo is not among"):
        AgentSettings.load(fallback="foo")
    monkeypatch.setenv("SLICELOCK_FALLBACK", "foo")
    with pytest.raises(ConfigurationError, match=r"^SLICELOCK_FALLBACK: foo") as caught:
        AgentSettings.load(pool="p")
    assert not isinstance(caught.value, UsageError)


def test_renew_must_fit_into_the_lease() -> None:
    with pytest.raises(ConfigurationError, match=r"SLICELOCK_RENEW.*SLICELOCK_LEASE"):
        Settings.load(lease=8.0)
    assert Settings.load(lease=10.0).poll_s == pytest.approx(3.0)
    assert Settings.load(lease=3.0, renew=1.0).wait_lease_s == 3.0


def test_beat_must_fit_into_silent() -> None:
    with pytest.raises(ConfigurationError, match=r"SLICELOCK_BEAT.*SLICELOCK_SILENT"):
        AgentSettings.load(beat=6.0)


def test_lists_are_separated_by_commas(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_FALLBACK", "hooks, kill")
    monkeypatch.setenv("SLICELOCK_ALLOW_UIDS", "1000,1001")
    agent = AgentSettings.load()
    assert (agent.fallback, agent.allow_uids) == (("hooks", "kill"), (1000, 1001))
    monkeypatch.setenv("SLICELOCK_FALLBACK", "hooks,prayer")
    with pytest.raises(ConfigurationError, match=r"SLICELOCK_FALLBACK.*prayer"):
        AgentSettings.load()


@pytest.mark.parametrize("value", ["²", "9" * 5000])
def test_what_python_cannot_read_as_a_number_is_none(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_MEMBERS", value)
    with pytest.raises(ConfigurationError, match="is not a number of members; use 1 or more"):
        Settings.load()
    monkeypatch.setenv("SLICELOCK_ALLOW_UIDS", value)
    with pytest.raises(ConfigurationError, match="is no user's number"):
        AgentSettings.load()


@pytest.mark.parametrize(("users", "wrong"), [("root", "root"), ("1000, ray ,-1", "ray, -1")])
def test_uids_that_are_no_numbers_are_named_with_the_remedy(
    users: str, wrong: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICELOCK_ALLOW_UIDS", users)
    with pytest.raises(ConfigurationError, match=rf"SLICELOCK_ALLOW_UIDS.*{wrong} is no.*`id -u`"):
        AgentSettings.load()


def test_what_is_missing_is_named_with_the_remedy() -> None:
    with pytest.raises(ConfigurationError, match=r"SLICELOCK_REDIS_URL is not set.*slicelock up"):
        Settings.load().url()
    for kind in (Settings, StoreSettings, AgentSettings):  # only a job's process has a mode
        with pytest.raises(ConfigurationError) as caught:
            kind.load().url()
        assert ("SLICELOCK_MODE=off" in caught.value.advice) == (kind is Settings)
    with pytest.raises(ConfigurationError, match=r"SLICELOCK_JOB is not set"):
        Settings.load().job_name()


def test_a_password_shows_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "redis://user:hunter2@host/0")
    settings = Settings.load()
    assert "hunter2" not in repr(settings) + str(settings)
    assert settings.url() == "redis://user:hunter2@host/0"


def test_a_password_may_be_in_a_file(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    given = StoreSettings.load(redis_password_file=tmp_path / "secret")
    assert given.redis_password is not None
    assert given.redis_password.get_secret_value() == "s3cret"
    assert "s3cret" not in repr(given)


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        (None, {}, "No such file"),
        (b"", {}, "is empty"),
        (b"\xff", {}, "not UTF-8"),
        (b"x" * 100_000, {}, "too long to hold a password"),
        (b"x", {"redis_password": "hidden"}, "both set"),
    ],
)
def test_a_file_without_a_password_is_refused_by_name(
    tmp_path: Path, content: bytes | None, more: dict[str, str], says: str
) -> None:
    if content is not None:
        (tmp_path / "secret").write_bytes(content)
    with pytest.raises(ConfigurationError, match=f"SLICELOCK_REDIS_PASSWORD_FILE.*{says}") as caught:
        StoreSettings.load(redis_password_file=tmp_path / "secret", **more)
    assert "hidden" not in str(caught.value)


def test_a_user_without_a_home_is_told_which_setting_helps(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a container that is started as some user's number."""

    def none() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", none)
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    monkeypatch.setenv("XDG_STATE_HOME", "")
    with pytest.raises(ConfigurationError, match="User 12345 has no home folder") as caught:
        AgentSettings.load()
    assert "SLICELOCK_STATE_DIR" in str(caught.value)
    monkeypatch.setenv("SLICELOCK_STATE_DIR", "/x")
    assert AgentSettings.load().state_dir == Path("/x")

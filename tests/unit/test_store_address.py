"""Where Redis is, read from the settings; what makes no sense is named with its remedy."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicelock import errors
from slicelock.settings import StoreSettings
from slicelock.store.address import Target, target_of

SENTINELS = "h1:26379,h2:26380,h3:26379"


def target(url: str | None = None, **facts: object) -> Target:
    return target_of(StoreSettings.load(redis_url=url, **facts))


@pytest.mark.parametrize("url", ["http://localhost", "localhost:6379", "redis://h/0?db=x"])
def test_a_url_of_another_kind_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match="SLICELOCK_REDIS_URL"):
        target(url)


@pytest.mark.parametrize(
    "option",
    [
        "socket_timeout=1",
        "protocol=3",
        "retry_on_timeout=yes",
        "foo=1",
        "ssl_cert_reqs=none",
        "ssl_check_hostname=no",
    ],
)
def test_options_that_slicelock_sets_itself_are_refused(option: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=option.split("=", maxsplit=1)[0]):
        target(f"redis://h/0?{option}")


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://user:secret@db.example:7000/3", "db.example:7000"),
        ("rediss://:secret@db.example", "db.example:6379"),
        ("unix:///run/redis.sock?password=secret", "/run/redis.sock"),
    ],
)
def test_a_place_is_named_without_credentials(url: str, place: str) -> None:
    assert target(url).place == place


def test_tls_is_used_when_the_url_says_so() -> None:
    assert target("rediss://h").tls
    assert not target("redis://h").tls


@pytest.mark.parametrize(
    ("url", "match"),
    [
        ("redis://h/xx", "its database 'xx' is not a number"),
        ("redis://h/-1", "its database '-1' is not a number"),
        ("redis://h:port/0", "host and port make no sense"),
        ("unix://nope", "three slashes"),
        ("unix://run/redis.sock", "three slashes"),
        ("redis+sentinel://h1,h2:26379/m/0", "the Sentinel h1 has no port"),
        ("redis+sentinel://h1:26379,/m/0", r"the Sentinel \(empty\) has no port"),
        ("redis+sentinel://h1:26379,h2:0/m/0", "the Sentinel h2:0 has no port that is a number"),
        ("redis+sentinel://h1:26379,h2:x/m/0", "the Sentinel h2:x has no port that is a number"),
        ("redis+sentinel://h1:26379,h2:²/m/0", "the Sentinel h2:² has no port that is a number"),
        ("redis+sentinel://fe80::1:26379,h2:26379/m", "the Sentinel fe80::1:26379 has no port"),
        (f"redis+sentinel://{SENTINELS}", "does not name the primary"),
        (f"redis+sentinel://{SENTINELS}/", "does not name the primary"),
        (f"redis+sentinel://{SENTINELS}/m/first", "its database 'first' is not a number"),
        (f"redis+sentinel://{SENTINELS}/m/0/1", "its database '0/1' is not a number"),
        ("redis+sentinel://h1:26379/m/0", "only the Sentinel h1:26379"),
        ("redis+sentinel://h1:26379,h1:26379/m/0", "only the Sentinel"),
        (f"redis+sentinel://{SENTINELS}/m/0?protocol=3", "protocol"),
    ],
)
def test_nonsense_is_named(url: str, match: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=rf"SLICELOCK_REDIS_URL.*{match}"):
        target(url)


@pytest.mark.parametrize(
    "url",
    [
        "redis://:pa/secret@h:1",
        "rediss://u:s:secret@h:secret/0",
        "redis://user:12#34secret@h:6379/0",
        "redis://user:12?34secret@h:6379/0",
        "redis://user:12/34secret@h:6379/0",
        "redis://user:12/0?34secret@h:6379/0",
        "redis://h:6379/0#secret",
        "redis+sentinel://user:12?secret@h1:1,h2:2/m",
        "redis+sentinel://user:12#secret@h1:1,h2:2/m",
        "redis+sentinel://h1:1,h2:2/m/0#secret",
        "unix://:12/secret@/run/redis.sock",
        "unix://:12?secret@/run/redis.sock",
        "unix:///run/redis.sock?password=12#secret",
    ],
)
def test_no_part_of_a_password_is_in_the_message(url: str) -> None:
    with pytest.raises(errors.ConfigurationError) as caught:
        target(url)
    assert "secret" not in str(caught.value)
    assert "12" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    ["redis://a..b:6379", "redis://.h", f"redis://{'x' * 64}.example", "redis+sentinel://h1:1,a..b:2/m"],
)
def test_a_host_that_no_connection_can_name_is_refused(url: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"SLICELOCK_REDIS_URL.* is no host's name"):
        target(url)


@pytest.mark.parametrize("wrong", ["%ff", "\udcff", "%C3x"])
@pytest.mark.parametrize(
    "url",
    [
        "redis://u:secret{}@h",
        "redis://secret{}:p@h",
        "redis://{}:1",
        "redis://h/0?password=secret{}",
        "unix://:secret{}@/run/redis.sock",
        "redis+sentinel://u:secret{}@h1:1,h2:2/m",
        "redis+sentinel://secret{}:p@h1:1,h2:2/m",
    ],
)
def test_a_url_that_is_not_utf8_is_refused(url: str, wrong: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"SLICELOCK_REDIS_URL.* not UTF-8 text") as caught:
        target(url.format(wrong))
    assert "percent form" in caught.value.advice
    assert "secret" not in str(caught.value)


def test_the_path_of_a_socket_may_have_any_bytes() -> None:
    assert target("unix:///run/\udcff.sock").options["path"] == "/run/\udcff.sock"
    assert target("redis://u:%C3%A9@h").options["password"] == "é"


def test_the_name_of_a_primary_that_is_not_utf8_is_refused() -> None:
    with pytest.raises(errors.ConfigurationError, match=r"--sentinel-name: .*not UTF-8"):
        target(sentinels=SENTINELS, sentinel_name="\udcff")


@pytest.mark.parametrize("url", ["redis://[::1]:6379", "redis://[fe80::1%25eth0]:1", "redis://h.example.:1"])
def test_hosts_of_every_kind_are_welcome(url: str) -> None:
    target(url)


@pytest.mark.parametrize("given", ["h1", "h1:1", "h1:1,h2:x", "u:secret#@h1:1,h2:2"])
def test_sentinels_that_make_no_sense_are_blamed_and_not_the_url(given: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"^SLICELOCK_SENTINELS cannot be used") as caught:
        target(sentinels=given)
    assert "SLICELOCK_REDIS_URL" not in str(caught.value)


def test_the_setting_that_names_the_primary_is_known() -> None:
    assert target(sentinels=SENTINELS).named_by == "SLICELOCK_SENTINEL_NAME"
    assert target(f"redis+sentinel://{SENTINELS}/m").named_by == "SLICELOCK_REDIS_URL"


def test_tls_with_the_systems_certificates_can_be_asked_for() -> None:
    assert target(sentinels=SENTINELS, sentinel_tls=True).tls
    assert not target(sentinels=SENTINELS).tls


def test_sentinels_a_name_and_a_database_in_one_url() -> None:
    read = target(f"redis+sentinel://user:p%40ss@{SENTINELS}/mymaster/3")
    assert read.sentinels == (("h1", 26379), ("h2", 26380), ("h3", 26379))
    assert (read.service, read.options["db"], read.tls) == ("mymaster", 3, False)
    assert (read.options["username"], read.options["password"]) == ("user", "p@ss")
    assert "p@ss" not in read.place
    assert read.sentinel_options == {}


def test_sentinels_by_ip_address_and_without_a_database() -> None:
    read = target("rediss+sentinel://[::1]:26379,10.0.0.1:26379/m")
    assert read.sentinels == (("::1", 26379), ("10.0.0.1", 26379))
    assert (read.tls, "db" in read.options) == (True, False)


def test_the_same_as_settings() -> None:
    read = target(
        sentinels=SENTINELS,
        sentinel_name="m",
        sentinel_db=2,
        redis_user="user",
        redis_password="one",
        sentinel_user="other",
        sentinel_password="two",
    )
    assert (read.service, read.options["db"], len(read.sentinels)) == ("m", 2, 3)
    assert (read.options["username"], read.options["password"]) == ("user", "one")
    assert read.sentinel_options == {"username": "other", "password": "two"}


def test_a_password_in_the_url_wins() -> None:
    assert target("redis://:mine@h", redis_password="other").options["password"] == "mine"


def test_certificates_go_to_the_servers_and_to_the_sentinels(tmp_path: Path) -> None:
    files = {name: tmp_path / name for name in ("ca", "cert", "key")}
    for file in files.values():
        file.write_text("x")
    given = {f"tls_{name}": file for name, file in files.items()}
    expected = {"ssl_ca_certs": "ca", "ssl_certfile": "cert", "ssl_keyfile": "key"}
    for read in (target(f"rediss+sentinel://{SENTINELS}/m", **given), target(sentinels=SENTINELS, **given)):
        assert read.tls
        for options in (read.options, read.sentinel_options):
            assert {name: Path(options[name]).name for name in expected} == expected
    assert target("rediss://h", **given).options["ssl_certfile"] == str(files["cert"])


def test_certificates_without_tls_are_refused(tmp_path: Path) -> None:
    (tmp_path / "ca").write_text("x")
    with pytest.raises(errors.ConfigurationError, match=r"SLICELOCK_TLS_CA is set.*rediss://"):
        target("redis://h", tls_ca=tmp_path / "ca")


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(errors.ConfigurationError, match=r"SLICELOCK_TLS_CA: .*none cannot be read"):
        target("rediss://h", tls_ca=tmp_path / "none")


@pytest.mark.parametrize(
    ("facts", "match"),
    [
        ({"redis_url": "redis://h", "sentinels": SENTINELS}, "both set"),
        ({"tls_cert": "x"}, "go together"),
        ({"tls_key": "x"}, "go together"),
        ({"redis_user": "x"}, "SLICELOCK_REDIS_PASSWORD"),
        ({"sentinel_user": "x"}, "SLICELOCK_SENTINEL_PASSWORD"),
    ],
)
def test_settings_that_do_not_go_together_are_named(facts: dict[str, str], match: str) -> None:
    with pytest.raises(errors.ConfigurationError, match=match):
        StoreSettings.load(**facts)

"""What is refused before any server is asked, and what is told of servers."""

from __future__ import annotations

import logging

import pytest

from slicelock.companion import Offer
from slicelock.errors import ConfigurationError
from slicelock.hooks import Hook, Server
from slicelock.servers import Kind, Plan, ServerUrl, SleepMode, SleepRecord

URL = "http://127.0.0.1:8000"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        (URL, URL),
        ("http://localhost:30000/", "http://localhost:30000"),
        ("https://[::1]/engine/", "https://[::1]:443/engine"),
        ("http://box", "http://box:80"),
    ],
)
def test_a_url_is_taken_apart(url: str, shown: str) -> None:
    assert str(ServerUrl.parse(url)) == shown


@pytest.mark.parametrize(
    "url",
    ["", "127.0.0.1:8000", "ftp://x", "http://", f"{URL}?a=b", f"{URL}#x", "http://x:99999", "http://x:0"],
)
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match="is no URL of a model server"):
        Server(url)


def test_a_password_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(ConfigurationError) as refused:
        Server("http://me:hunter2@127.0.0.1:8000")
    assert "token=" in str(refused.value)
    assert "hunter2" not in str(refused.value)


def test_a_key_is_never_shown() -> None:
    server = Server(URL, token="hunter2")
    assert repr(server) == f"Server({URL})"
    assert "hunter2" not in repr(server._servers[0]._control._http)  # type: ignore[attr-defined]


def test_addresses_that_others_can_reach_are_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, "slicelock"):
        Server(URL)
        Server("http://localhost:8000", "http://[::1]:8000")
        assert not caplog.records
        Server("http://192.0.2.7:8000")
    assert [record.getMessage() for record in caplog.records] == [
        "http://192.0.2.7:8000 can be reached from elsewhere: whoever does can put it to sleep, too"
    ]


def test_whether_an_address_is_this_machines() -> None:
    assert ServerUrl.parse(URL).on_this_machine
    assert not ServerUrl.parse("http://192.0.2.7:8000").on_this_machine  # of the block for documentation
    assert not ServerUrl.parse("http://somewhere:8000").on_this_machine


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"kind": "tgi"}, "'tgi' is no kind of model server. There are vllm and sglang."),
        ({"mode": "now"}, "'now' is no mode of going to sleep. There are wait, keep and abort."),
        ({"level": 3}, "There is no sleep level 3. It is 1 or 2."),
        ({"level": 2}, "sleep level 2 drops the weights. Say with reload="),
        ({"drain": 0}, "0 s for 'drain' makes no sense."),
        ({"timeout": 1e9}, "for 'timeout' makes no sense."),
        ({"deadline": -1}, "-1 s for 'deadline' makes no sense. It lies above 0"),
        ({"deadline": float("nan")}, "nan s for 'deadline' makes no sense."),
        ({"residue_gib": -1}, "A residue of -1 GiB is not possible. Give residue_gib="),
        ({"residue_gib": float("inf")}, "A residue of inf GiB is not possible."),
        ({"tags": ["weights"]}, "Only SGLang releases by tag"),
        ({"kind": "sglang"}, "a second release ends it. Give asleep="),
        ({"kind": "sglang", "asleep": False, "level": 2}, "Sleep levels and their reload method are vLLM's"),
        (
            {"kind": "sglang", "asleep": False, "reload": "m"},
            "Sleep levels and their reload method are vLLM's",
        ),
    ],
)
def test_options_that_make_no_sense_are_refused(options: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        Server(URL, **options)  # type: ignore[arg-type]
    assert words in str(refused.value)


def test_it_is_a_hook_that_leaves_something_on_the_device() -> None:
    hook = Server(URL, residue_gib=3)
    assert isinstance(hook, Hook)
    assert Offer(hook, ("s",), None).described() == {
        **{"name": "Server", "slices": ["s"], "self": False, "residue": 3 * 1024**3, "overlaps": False}
    }


@pytest.mark.parametrize(
    ("tags", "released"),
    [("weights", ("weights",)), (["weights", "kv_cache"], ("weights", "kv_cache")), ("", ()), ((), ())],
)
def test_one_tag_may_be_given_as_it_is(tags: str | list[str], released: tuple[str, ...]) -> None:
    hook = Server(URL, kind="sglang", asleep=False, tags=tags)
    assert hook._servers[0].plan.tags == released


def test_a_plan_survives_being_told() -> None:
    plan = Plan(url=URL, kind=Kind.SGLANG, mode=SleepMode.KEEP, tags=("kv_cache",), drain=3, timeout=4)
    assert Plan.of(plan.facts()) == plan
    assert Plan.of({"kind": "vllm", "url": URL}) == Plan(url=URL)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ({}, "is no URL"),
        ({"url": URL, "kind": []}, "is no kind"),
        ({"url": URL, "kind": "vllm", "level": "high"}, "described wrongly"),
        ({"url": URL, "kind": "vllm", "drain": {}}, "described wrongly"),
        ({"url": URL, "kind": "sglang", "tags": "weights"}, "tags are a list"),
        ({"url": ["x"], "kind": "vllm"}, "is no URL"),
    ],
)
def test_what_is_told_wrongly_is_refused_by_name(facts: dict[str, object], words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        Plan.of(facts)


def test_a_record_survives_being_written() -> None:
    record = SleepRecord(("resume weights", "continue"), "123", "release")
    assert SleepRecord.of(record.facts()) == SleepRecord(record.steps, "123", "release", doubtful=True)
    assert SleepRecord.of(SleepRecord(("wake",)).facts()) == SleepRecord(("wake",))

"""What goes into a script and what comes back."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_type_hints

import pytest

from slicelock import wire
from slicelock.errors import SchemaMismatch, StoreError


def test_arguments_are_encoded_by_their_type_in_order() -> None:
    command = wire.Acquire("r", "j", "main", 3, "0", 2, ("a", "b"), "p", 60_000, 15_000, no_wait=True)
    assert command.argv() == [
        *("r", "j", "main", "3", "0", "2", "a b", "p", "60000", "15000"),
        *("0", "0", "", "1"),
    ]


def test_json_arguments_are_compact() -> None:
    assert wire.Declare("s", {"n": ["sim:0"]}).argv() == ["s", '{"n":["sim:0"]}', "{}", "0"]


def test_a_reply_is_decoded_by_its_annotations() -> None:
    fence = 1_800_000_000_000 * 1024 + 1
    reply = wire.AcquireReply.decode(
        [b"HELD", b"fences", b'{"a":%d}' % fence, b"lease_ms", b"60000", b"moved", b"1"]
    )
    assert (reply.outcome, reply.fences, reply.lease_ms, reply.moved) == ("HELD", {"a": fence}, 60_000, True)


def test_numbers_may_come_as_integers_and_names_as_a_list() -> None:
    assert wire.AcquireReply.decode([b"QUEUED", b"position", 2, b"joined", b"0 1"]).position == 2
    assert wire.AcquireReply.decode([b"GATHERING", b"joined", b"0 1"]).joined == ("0", "1")


def test_a_newer_scripts_extra_names_are_ignored() -> None:
    assert wire.Reply.decode([b"OK", b"weather", b"fine"]).outcome == "OK"


def test_another_schema_is_an_error_with_both_versions() -> None:
    with pytest.raises(SchemaMismatch, match=r"schema 7, this slicelock has 1"):
        wire.BeatReply.decode([b"SCHEMA", b"found", b"7", b"expected", b"1"])


@pytest.mark.parametrize("command", wire.SCRIPT_CALLS, ids=lambda command: command.script)
def test_every_command_is_complete(command: type[wire.ScriptCall]) -> None:
    assert {"SCHEMA"} < command.outcomes
    assert command.__doc__
    encodable = {str, int, bool, wire.Words, wire.Json}
    assert all(get_type_hints(command)[part.name] in encodable for part in fields(command))
    decodable = encodable | {wire.Fences}
    assert all(get_type_hints(command.reply)[part.name] in decodable for part in fields(command.reply))


@pytest.mark.parametrize(
    "raw",
    [
        *(None, 1, b"OK", b"HELD", [], [1], [None], [b"ELSE"], [[b"HELD"]], [b"HELD", b"lease_ms"]),
        *([b"HELD", b"lease_ms", b"soon"], [b"HELD", b"fences", b"[1]"], [b"HELD", b"fences", b"{"]),
        [b"HELD", [b"fences"], b"{}"],
    ],
)
def test_what_is_no_answer_is_refused(raw: Any) -> None:
    call = wire.Acquire("r", "j", "main", 3, "0", 2, ("a",), "p", 60_000, 15_000)
    with pytest.raises(StoreError, match=r"call of acquire makes no sense: .*SLICELOCK_REDIS_URL"):
        call.decode(raw)

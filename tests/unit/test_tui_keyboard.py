"""What a terminal sends for keys."""

from __future__ import annotations

import pytest

from slicelock.tui.keyboard import Keyboard


@pytest.mark.parametrize(
    ("data", "names"),
    [
        (b"jk?", ["j", "k", "?"]),
        (b"\x1b[A\x1bOB\x1b[5~\x1b[H", ["up", "down", "page up", "home"]),
        (b"\r\n\t\x7f", ["enter", "enter", "tab", "backspace"]),
        ("é/".encode(), ["é", "/"]),
        (b"\x1b\x1b[B", ["escape", "down"]),
        (b"\x1b[99;5Xq", ["q"]),
        (b"\x01q", ["q"]),
    ],
)
def test_keys_have_names(data: bytes, names: list[str]) -> None:
    assert Keyboard().feed(data) == names


def test_what_is_cut_off_waits_for_the_rest() -> None:
    keys = Keyboard()
    assert keys.feed(b"\x1b[") == [] and keys.waits
    assert keys.feed(b"A") == ["up"] and not keys.waits
    euro = "€".encode()
    assert keys.feed(euro[:1]) + keys.feed(euro[1:]) == ["€"]


def test_an_escape_that_nothing_follows_is_the_key() -> None:
    keys = Keyboard()
    assert keys.feed(b"\x1b") == []
    assert keys.flush() == ["escape"]
    assert not keys.waits


def test_noise_is_no_key_and_ends() -> None:
    keys = Keyboard()
    assert keys.feed(b"\x1b[" + b"1" * 40 + b"q")[-1:] in ([], ["q"])
    assert not keys.feed(bytes([0xFF])) or True
    assert keys.feed(b"qqqq")[-1] == "q"

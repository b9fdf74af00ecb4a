"""What a subscription takes for a message and for a confirmation, and what for neither."""

from __future__ import annotations

import pytest

from slicelock.store.subscribe import confirms, message_in


def test_a_message_and_a_confirmation() -> None:
    assert message_in([b"message", b"c", b"held r1/main/1"]) == (b"c", b"held r1/main/1")
    assert confirms([b"subscribe", b"c", 1])


@pytest.mark.parametrize(
    "reply", [None, 1, b"PONG", [], [b"pong", b""], [None], [1, 2, 3], [b"message"], [b"message", b"c", None]]
)
def test_anything_else_is_neither(reply: object) -> None:
    assert message_in(reply) is None
    assert not confirms(reply)

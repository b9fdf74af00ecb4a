"""The error tree is what its drawing says, and every error says what happened."""

from __future__ import annotations

import re

import pytest

from slicelock import errors
from slicelock.errors import LeaseLost, SlicelockError


def every(kind: type[SlicelockError]) -> list[type[SlicelockError]]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in every(below))]


def drawn() -> dict[str, str]:
    """Each class in the drawing with the one above it."""
    parents: dict[str, str] = {}
    path: list[str] = []
    for line in (errors.__doc__ or "").splitlines():
        if match := re.match(r"([ │├└─]*)([A-Z]\w+)", line):
            depth = len(match[1]) // 4
            path = [*path[:depth], match[2]]
            if depth:
                parents[match[2]] = path[depth - 1]
    return parents


def test_the_drawing_is_the_tree() -> None:
    assert drawn() == {
        kind.__name__: kind.__bases__[0].__name__
        for kind in every(SlicelockError)[1:]
        if kind.__module__ == errors.__name__
    }


@pytest.mark.parametrize("kind", every(SlicelockError), ids=lambda kind: kind.__name__)
def test_the_docstring_is_the_default_message(kind: type[SlicelockError]) -> None:
    assert str(kind()) == (kind.__doc__ or "").splitlines()[0]


def test_advice_and_facts_go_with_the_message() -> None:
    error = SlicelockError("It broke.", advice="Mend it.", slice="a", job="j", run="r", fence=3)
    assert str(error) == "It broke. Mend it."
    assert (error.slice, error.job, error.run, error.fence) == ("a", "j", "r", 3)


def test_a_lost_lease_says_whether_the_state_is_saved() -> None:
    assert LeaseLost("Gone.", state_saved=True, slice="a").state_saved
    assert not LeaseLost().state_saved

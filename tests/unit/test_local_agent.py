"""An agent as a child process: what is said when it does not start."""

from __future__ import annotations

import re
import sys

import pytest

from slicelock.errors import AgentError
from slicelock.local_agent import LocalAgent


def test_a_start_that_fails_quotes_no_earlier_agent(monkeypatch: pytest.MonkeyPatch) -> None:
    agent = LocalAgent({}, {})
    agent._log.write(b"slicelock-agent: error: what ended the one before\n")
    agent._log.flush()
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(AgentError, match=re.escape("The agent did not start: it said nothing")):
        agent.start()
    agent.close()

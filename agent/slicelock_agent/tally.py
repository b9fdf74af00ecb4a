"""What of the agent's doings is counted. `metrics` counts it for Prometheus; without metrics nobody does."""

from __future__ import annotations

from slicelock_agent.result import Result


class Tally:
    """Is told of everything, and counts nothing. Called in the event loop: each call is short."""

    def told(self, result: Result) -> None:
        """A switch has ended here with this result; a result may be told again."""

    def answered(self, seconds: float) -> None:
        """A beat was answered after some seconds."""

    def failed(self) -> None:
        """A beat was not answered, or with an error."""

    def connected(self) -> None:
        """A connection to Redis was opened."""

    def epoch(self, number: int) -> None:
        """Redis has told another epoch."""

    def wished(self, found_by: str) -> None:
        """Another turn is wanted on a slice; found by a `message` or by a `poll`."""


UNCOUNTED = Tally()

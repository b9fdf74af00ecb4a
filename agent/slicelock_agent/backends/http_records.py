"""What has been done to model servers, in files: a restarted agent undoes that, and nothing else."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, cast

from slicelock.errors import AgentError
from slicelock.identity import ProcessIdentity
from slicelock.servers import SleepRecord


class ServerRecords:
    """A file for each process that has servers asleep: by URL, what is to be undone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._forget_the_dead()

    def write(self, process: str, records: Mapping[str, SleepRecord]) -> None:
        """Have it there whole or not at all; AgentError when it cannot be written."""
        facts = {url: record.facts() for url, record in records.items() if record.steps}
        path = self._folder / process
        try:
            if not facts:
                path.unlink(missing_ok=True)
                return
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            part = path.with_name(f".{process}")
            part.write_text(json.dumps(facts))
            part.rename(path)
        except OSError as failure:
            raise AgentError(f"{path} cannot be written: {failure.strerror}.") from None

    def read(self, process: str) -> dict[str, SleepRecord]:
        """What was written for a process; empty when nothing was, or nobody can read it."""
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            raw = cast(dict[str, Any], json.loads((self._folder / process).read_text()))
            return {url: SleepRecord.of(facts) for url, facts in raw.items()}
        return {}

    def _forget_the_dead(self) -> None:
        with suppress(OSError):  # nothing is there, or nobody may look
            for path in self._folder.iterdir():
                if has_ended(path.name):
                    path.unlink(missing_ok=True)


def has_ended(process: str) -> bool:
    """Whether a process of this namespace is gone; of others, and where it cannot be told, it is not."""
    try:
        identity, mine = ProcessIdentity.parse(process), ProcessIdentity.of()
        if (identity.boot, identity.namespace) != (mine.boot, mine.namespace):
            return identity.boot != mine.boot
        return ProcessIdentity.of(identity.pid) != identity
    except (ValueError, ProcessLookupError):
        return True
    except OSError:
        return False

"""Fault campaigns from the command line, as `make chaos` runs them:

python -m tests.chaos --seconds 120 --seeds 1,2,3 --write docs/reference/faults.md
"""

from __future__ import annotations

import sys
import tempfile
from itertools import product
from pathlib import Path
from typing import Annotated

import typer

from tests.chaos.campaign import Outcome, campaign
from tests.chaos.faults import FAULTS
from tests.chaos.table import page


def main(
    seconds: Annotated[float, typer.Option(help="How long each campaign does harm.")] = 120.0,
    seeds: Annotated[str, typer.Option(help="One campaign for each.")] = "1",
    server: Annotated[str, typer.Option(help="valkey, redis, or both by comma.")] = "valkey",
    only: Annotated[str, typer.Option(help="Faults whose names contain one of these words, by comma.")] = "",
    write: Annotated[Path | None, typer.Option(help="Write the table to this file.")] = None,
) -> None:
    """Do harm to a pool at work; exit code 1 when anything happened that must not."""
    names = [name for name in FAULTS if any(word in name for word in only.split(","))]
    outcomes: dict[str, Outcome] = {}
    for kind, seed in product(server.split(","), map(int, seeds.split(","))):
        print(f"{kind}, seed {seed}", flush=True)
        with tempfile.TemporaryDirectory(prefix="slicelock-chaos-") as folder:
            one = campaign(Path(folder), kind, seed, names, seconds=seconds, tell=_tell)
        outcomes.setdefault(kind, Outcome()).add(one)
    text = page(outcomes, f"Made by `make chaos SECONDS={seconds:g} SEEDS={seeds} SERVER={server}`.\n")
    print(text)
    if write:
        write.write_text(text)
    sys.exit(any(one.violations for one in outcomes.values()))


def _tell(line: str) -> None:
    print(f"  {line}", flush=True)


if __name__ == "__main__":
    typer.run(main)

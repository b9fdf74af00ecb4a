"""`slicelock status` and `slicelock revoke`: see the pool, and end a turn in it."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from slicelock.cli import options, render
from slicelock.cli.app import app
from slicelock.cli.console import say, show, show_json
from slicelock.cli.pool import connected, look, refused
from slicelock.states import RequestOutcome, SliceState
from slicelock.wire import Revoke

OptionalSlice = Annotated[
    str | None,
    typer.Argument(
        metavar="SLICE",
        help="Show only this slice.",
        callback=options.name_of("slice"),
        show_default=False,
    ),
]
Target = Annotated[
    str,
    typer.Argument(metavar="SLICE|REQUEST", help="A slice, for the turn it is held by, or a request's id."),
]


@app.command(epilog="Example: slicelock status trainers --json")
def status(
    name: OptionalSlice = None,
    pool: options.Pool = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> None:
    """Show who holds which slice, who waits, and what is wrong."""
    with connected(pool) as (store, settings):
        picture = look(store, settings, name or "")
    if as_json:
        show_json(asdict(picture))
    else:
        show(render.picture(picture))


@app.command(epilog='Example: slicelock revoke trainers --why "node goes down at six"')
def revoke(
    target: Target,
    why: Annotated[str, typer.Option("--why", help="The reason, for the job's log and the history.")] = "",
    requeue: Annotated[
        bool, typer.Option("--requeue", help="Put a request that is being switched back into its queues.")
    ] = False,
    pool: options.Pool = None,
    debug: options.Debug = False,
) -> None:
    """End a turn or a waiting request against its run's will."""
    request = target if "/" in target else ""
    name = options.checked_name("slice", target, "SLICE|REQUEST") if not request else ""
    with connected(pool) as (store, settings):
        if not request:
            seen = look(store, settings, name)
            holder = seen.slices[0].holder
            if holder is None and seen.slices[0].state != SliceState.FREE:
                record, why = next(iter(seen.senseless.items()), ("", ""))
                advice = f"Name it: slicelock revoke {record.removeprefix('request ')}"
                raise refused(
                    f"Nothing was revoked on {name}: the record {record} makes no sense", why, advice
                )
            if holder is None:
                say(f"Nobody holds {name}; there is nothing to revoke.")
                return
            request = holder.id
        reply = store.run(Revoke(request, why or "an operator revoked it", requeue))
    if reply.outcome == "ENDED" and reply.ended != RequestOutcome.REVOKED:
        raise refused(f"Request {request} was not revoked", _why_not(reply.ended), "See `slicelock status`.")
    if reply.outcome == "NOT_SWITCHING":
        why_not = f"it is {reply.state}, and only what is being switched can go back to its place"
        raise refused(f"Request {request} was not put back", why_not, "Without --requeue it is ended.")
    say(f"Put {request} back into its queues." if requeue else f"Revoked {request}.")


def _why_not(ended: str) -> str:
    return "it is not known" if ended == "not known" else f"it had ended ({ended})"

"""The option `--since`: how far back to look."""

from __future__ import annotations

import re
import time
from datetime import datetime, timedelta
from typing import Annotated

import typer

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
AGO = re.compile(r"(\d+(?:\.\d+)?)([smhdw])")


def since_ms(text: str, now_ms: int) -> int:
    """`10m` before `now_ms`, or an ISO time (local unless it says otherwise), in ms; BadParameter for
    anything else."""
    try:
        if match := AGO.fullmatch(text.strip()):
            back = timedelta(**{UNITS[match[2]]: float(match[1])})
            return max(now_ms - int(back.total_seconds() * 1000), 0)
        return max(int(datetime.fromisoformat(text.strip()).timestamp() * 1000), 0)
    except (ValueError, OverflowError, OSError):
        raise typer.BadParameter(
            f"{text!r} is neither a length of time such as 90s, 10m, 2h or 3d, nor an ISO time such as "
            "2026-05-01T12:30.",
            param_hint="--since",
        ) from None


def checked(text: str | None) -> str | None:
    """Refuse what makes no sense before Redis is asked."""
    now_ms = int(time.time() * 1000)
    if text is not None and since_ms(text, now_ms) > now_ms:
        raise typer.BadParameter(f"{text!r} lies in the future.", param_hint="--since")
    return text


Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        metavar="TIME",
        help="How far back to look: a length of time (90s, 10m, 2h, 3d) or an ISO time (2026-05-01T12:30).",
        callback=checked,
        show_default=False,
    ),
]

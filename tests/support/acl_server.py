"""A server with the users of examples/deploy/redis/users.acl, their passwords easy to find again."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

import redis

from slicelock.embedded import EmbeddedServer
from tests.support.scripts import connect

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "examples/deploy"
USERS = ("agent", "client", "operator", "viewer")
MARK = "Mark3d-Secr3t"


def acl_file(folder: Path) -> Path:
    """The ACL file that users.sh makes of secrets that it finds in a folder."""
    secrets = folder / "secrets"
    secrets.mkdir(exist_ok=True)
    for user in USERS:
        (secrets / f"{user}_password").write_text(f"{MARK}-{user}\n")
    made = subprocess.run(
        ["sh", DEPLOY / "redis/users.sh", secrets], capture_output=True, text=True, check=True, timeout=20
    )
    path = folder / "users.acl"
    path.write_text(made.stdout + f"user admin on >{MARK}-admin ~* &* +@all\n")
    return path


@dataclass(frozen=True, slots=True)
class Guarded:
    """A running server on which nothing can be done without a user."""

    server: EmbeddedServer

    def url(self, user: str) -> str:
        return self.server.url.replace("://", f"://{user}:{MARK}-{user}@")

    def password_file(self, user: str) -> Path:
        return Path(self.server.options["aclfile"]).with_name("secrets") / f"{user}_password"

    def connect(self, user: str) -> redis.Redis:
        return connect(self.url(user))

    def refused(self) -> list[str]:
        """What the server has refused to do, by user, as its ACL log has it; the log is empty afterwards."""
        with self.connect("admin") as admin:
            log = admin.acl_log()
            admin.acl_log_reset()
        fields = ("username", "reason", "context", "object")
        rows = [{_text(name): _text(value) for name, value in entry.items()} for entry in log]
        return [" ".join(row[field] for field in fields) for row in rows]


def _text(raw: object) -> str:
    return raw.decode() if isinstance(raw, bytes) else str(raw)

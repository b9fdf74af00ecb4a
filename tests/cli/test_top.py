"""`slicelock top` in a real terminal: keys, failover, signals, and how it leaves the terminal."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from slicelock.cli.failures import ExitCode
from slicelock.cli.top import PIPED_COLUMNS
from slicelock.embedded import EmbeddedServer
from slicelock.local_agent import LocalAgent
from slicelock.settings import StoreSettings
from slicelock.store import Store
from slicelock.wire import Acquire, Declare
from tests.cli.conftest import Call
from tests.cli.programs import SLICELOCK, alive
from tests.support.acl_server import Guarded, acl_file
from tests.support.tmux import PROMPT, Tmux
from tests.support.wait import wait_until

pytestmark = pytest.mark.one_server

TOP = f"{sys.executable} -m slicelock top --refresh 0.25"
MakePane = Callable[..., Tmux]


@pytest.fixture
def store(slicelock_env: dict[str, str]) -> Iterator[Store]:
    """The pool, with two slices; one is held, and somebody waits for it."""
    made = Store(StoreSettings.load())
    fill(made)
    yield made
    made.close()


def fill(store: Store) -> None:
    for name in ("samplers", "trainers"):
        store.run(Declare(name, {}))
    for run in ("a", "b"):
        ask(store, run)


def ask(store: Store, run: str) -> str:
    """What a run that asks for the trainers achieves."""
    its = (run, f"job-{run}", "main", 1, "0", 1, ("trainers",), f"{run}:0:1:0", 60_000, 60_000)
    return store.run(Acquire(*its, phase="train")).outcome


@pytest.fixture
def make_pane(tmp_path: Path) -> Iterator[MakePane]:
    """A terminal of some size with a shell in it."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is missing")
    made: list[Tmux] = []

    def make(columns: int = 80, rows: int = 24, **env: str) -> Tmux:
        folder = tmp_path / f"pane{len(made)}"
        folder.mkdir()
        made.append(Tmux(folder, columns, rows, env))
        return made[-1]

    yield make
    for one in made:
        one.close()


# ---------------------------------------------------------------- what is seen, and keys


def test_it_shows_who_has_what_and_keys_move_about(store: Store, make_pane: MakePane) -> None:
    pane = make_pane()
    pane.type(TOP)
    screen = pane.wait_for("trainers", "held", "job-a train", "q quit")
    assert screen.splitlines()[0].startswith(" slicelock top  pool ")
    pane.keys("End")
    pane.wait_for("── trainers", "WAITING", "job-b train", "held by job-a")
    pane.keys("Enter")
    pane.wait_for("Enter back", "LAST EVENTS")
    pane.keys("Escape")
    pane.wait_for("Enter details", "SLICE")
    pane.keys("/")
    pane.type("samp")
    pane.wait_for("filter samp")
    pane.wait_without("trainers")
    pane.keys("Escape")
    pane.wait_for("trainers")
    pane.keys("?")
    pane.wait_for("select a slice")
    pane.keys("x", "p")
    pane.wait_for(" paused ")
    pane.keys("q")
    pane.wait_for(PROMPT)


def test_an_operator_revokes_and_drains_after_a_question(store: Store, make_pane: MakePane) -> None:
    pane = make_pane()
    pane.type(TOP)
    pane.wait_for("r revoke", "job-a train")
    pane.keys("End", "r")
    pane.wait_for("Revoke the turn of job-a on trainers?", "Request a/main/1.")
    pane.keys("n")
    pane.wait_without("Revoke the turn")
    assert ask(store, "a") == "HELD"
    pane.keys("r", "y")
    pane.wait_for("revoked a/main/1 on trainers", "job-b train")
    assert ask(store, "b") == "HELD"
    pane.keys("d")
    pane.wait_for("Drain trainers?", "The turn of job-b goes on and ends by itself.")
    pane.keys("y")
    pane.wait_for("trainers is draining")
    pane.keys("d", "y")
    pane.wait_for("trainers goes on")


def test_readonly_offers_nothing(store: Store, make_pane: MakePane) -> None:
    pane = make_pane()
    pane.type(f"{TOP} --readonly")
    pane.wait_for("job-a train", "s sort")
    pane.keys("End", "r", "y", "d", "y")
    pane.keys("Enter")
    assert "revoke" not in pane.wait_for("Enter back")
    assert ask(store, "a") == "HELD"


@pytest.fixture
def guarded(server: EmbeddedServer, tmp_path: Path) -> Iterator[Guarded]:
    """A server on which everybody needs a user of examples/deploy."""
    with EmbeddedServer(binary=server.binary, options={"aclfile": str(acl_file(tmp_path))}) as made:
        yield Guarded(made)


@pytest.mark.parametrize(("user", "acts"), [("viewer", False), ("operator", True)])
def test_only_who_may_write_is_offered_actions(
    guarded: Guarded, make_pane: MakePane, user: str, acts: bool
) -> None:
    store = Store(StoreSettings(redis_url=guarded.url("operator")))  # type: ignore[arg-type]
    fill(store)
    pane = make_pane(SLICELOCK_REDIS_URL=guarded.url(user))
    pane.type(TOP)
    pane.wait_for("job-a train", "s sort")
    pane.keys("End")
    pane.wait_for("── trainers", "job-b train")
    pane.keys("Enter")
    screen = pane.wait_for("Enter back", "LAST EVENTS", "queued", *(["r revoke"] if acts else []))
    assert ("revoke" in screen) is acts
    pane.keys("r", "y")
    if acts:
        pane.wait_for("revoked a/main/1")
    pane.keys("q")
    pane.wait_for(PROMPT)
    assert ask(store, "a") == ("ENDED" if acts else "HELD")
    store.close()


def test_it_follows_the_terminals_size(store: Store, make_pane: MakePane) -> None:
    pane = make_pane(60, 15)
    pane.type(TOP)
    assert "LEASE" not in pane.wait_for("job-a", "SLICE")
    pane.ask("resize-window", "-x", "150", "-y", "30")
    pane.wait_for("LEASE", "│── samplers")
    pane.ask("resize-window", "-x", "30", "-y", "5")
    pane.wait_for("too small: 30x5")


JOB = """
import sys, time, slicelock
from slicelock.sim import SimDevice
trainers, device = slicelock.Slice("trainers"), SimDevice.attach()
made = None
while True:
    with trainers.turn(phase="train") as turn, device.use(turn):
        made = device.array(1 << 18) if made is None else made
        time.sleep(0.9)
    time.sleep(0.2)
"""


def test_a_real_pool_with_agents_and_jobs(
    slicelock_env: dict[str, str], make_pane: MakePane, tmp_path: Path
) -> None:
    """Two jobs alternate on a simulated device; what the agent reports is shown."""
    env = slicelock_env | {"SLICELOCK_SIM_DIR": str(tmp_path / "sim"), "SLICELOCK_SIM_DEVICE": "sim:0"}
    env |= {
        "SLICELOCK_STATE_DIR": str(tmp_path),
        "SLICELOCK_SIM_CAPACITY": str(2 << 20),
        "SLICELOCK_NODE": "here",
    }
    with ExitStack() as stack:
        stack.enter_context(LocalAgent({"trainers": "sim:0"}, env))
        for job in ("math", "code"):
            child = subprocess.Popen(
                [sys.executable, "-c", JOB], env={**os.environ, **env, "SLICELOCK_JOB": job}
            )
            stack.callback(child.wait)
            stack.callback(child.kill)
        pane = make_pane(100, 40, NO_COLOR="1")
        pane.type(TOP)
        pane.wait_for("loaded ", "saved ", "of 2 MiB", "% busy", "GB/s", " / ")
        pane.keys("w", "w")
        pane.wait_for("last 1 min")
        wait_until(lambda: "AB" in pane.screen() and "BA" in pane.screen(), timeout=20, what="alternation")
        assert "WAITING" in pane.wait_for("held by ")
        pane.keys("d", "y")
        pane.wait_for("trainers is draining", "▽ draining")
        pane.keys("d", "y")
        pane.wait_for("trainers goes on", "held")


# ---------------------------------------------------------------- Redis away


def test_an_outage_is_told_and_an_empty_server_has_begun_anew(
    own_server: Callable[..., EmbeddedServer], make_pane: MakePane, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(port=0)
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    store = Store(StoreSettings.load())
    fill(store)
    pane = make_pane(SLICELOCK_REDIS_URL=server.url, SLICELOCK_STORE_TIMEOUT="1")
    pane.type(TOP)
    pane.wait_for("job-a train")
    store.close()
    server.kill()
    pane.wait_for("no answer for", f"Redis at 127.0.0.1:{server.port}", "job-a train")
    server.start()
    pane.wait_for(f"127.0.0.1:{server.port} began anew", "has no slices")
    store = Store(StoreSettings.load())
    fill(store)
    store.close()
    pane.wait_for("job-a train", "samplers")
    pane.keys("q")
    pane.wait_for(PROMPT)


def test_a_server_that_hangs_holds_nothing_up(
    own_server: Callable[..., EmbeddedServer], make_pane: MakePane, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = own_server(port=0)
    monkeypatch.setenv("SLICELOCK_REDIS_URL", server.url)
    store = Store(StoreSettings.load())
    fill(store)
    store.close()
    pane = make_pane(SLICELOCK_REDIS_URL=server.url)
    pane.type(TOP)
    pane.wait_for("job-a train")
    os.kill(server.pid, signal.SIGSTOP)
    try:
        pane.keys("End")
        pane.wait_for("── trainers")
        pane.wait_for("no answer for")
        pane.keys("q")
        pane.wait_for(PROMPT)
    finally:
        os.kill(server.pid, signal.SIGCONT)


# ---------------------------------------------------------------- what is left of the terminal


def shell_view(pane: Tmux) -> tuple[str, str]:
    """The terminal's modes and the screen, as the shell leaves them."""
    modes = pane.modes()
    return modes, pane.facts()


@pytest.mark.parametrize("ending", ["q", "C-c", "TERM", "HUP"])
def test_the_terminal_is_as_it_was(store: Store, make_pane: MakePane, ending: str) -> None:
    pane = make_pane()
    pane.type("echo what was here before")
    before = shell_view(pane)
    pane.type(f"{TOP}; echo code $?")
    pane.wait_for("job-a train")
    assert pane.facts() == "1 0 0", "the other screen, no cursor, no breaks"
    if ending in ("TERM", "HUP"):
        os.kill(pane.pid_of("top"), getattr(signal, f"SIG{ending}"))
    else:
        pane.keys(ending)
    code = {"TERM": 143, "HUP": 129}.get(ending, 0)
    screen = pane.wait_for(f"code {code}", "what was here before")
    assert "job-a train" not in screen
    assert shell_view(pane) == before


def test_an_exception_leaves_the_terminal_clean(store: Store, make_pane: MakePane, tmp_path: Path) -> None:
    (tmp_path / "broken.py").write_text(
        "import slicelock.tui.app as app\n"
        "from slicelock.cli import main\n"
        "draw, drawn = app.frame, []\n"
        "def frame(*words):\n"
        "    drawn.append(1)\n"
        "    if len(drawn) > 2: raise RuntimeError('a mistake')\n"
        "    return draw(*words)\n"
        "app.frame = frame\n"
        "raise SystemExit(main(['top', '--refresh', '0.25']))\n"
    )
    pane = make_pane()
    pane.type("echo what was here before")
    before = shell_view(pane)
    pane.type(f"{sys.executable} {tmp_path / 'broken.py'}; echo code $?")
    pane.wait_for("a mistake", f"code {ExitCode.OTHER}", "what was here before")
    assert shell_view(pane) == before


def test_ctrl_z_gives_the_terminal_back_and_fg_takes_it_again(store: Store, make_pane: MakePane) -> None:
    pane = make_pane()
    before = shell_view(pane)
    pane.type(TOP)
    pane.wait_for("job-a train")
    pane.keys("C-z")
    pane.wait_for("Stopped")
    assert shell_view(pane) == before
    pane.type("fg")
    pane.wait_for("job-a train", "q quit")
    assert pane.facts() == "1 0 0"
    pane.keys("q")
    pane.wait_for("Stopped", PROMPT)
    assert shell_view(pane) == before


def test_it_ends_with_its_terminal(store: Store, make_pane: MakePane) -> None:
    pane = make_pane()
    pane.type(TOP)
    pane.wait_for("job-a train")
    pid = pane.pid_of("top")
    pane.close()
    wait_until(lambda: not alive(pid), what="its end")


# ---------------------------------------------------------------- no terminal


def test_once_prints_one_frame(store: Store, call: Call) -> None:
    ended = call("top", "--once")
    assert (ended.code, ended.err) == (ExitCode.DONE, "")
    for part in ("trainers", "job-a train", "samplers"):
        assert part in ended.out
    assert "\x1b" not in ended.out and "q quit" not in ended.out
    lines = ended.out.splitlines()
    assert max(map(len, lines)) <= PIPED_COLUMNS and not [
        line for line in lines if line.strip(" │") == "" != line
    ]
    assert lines[-1].strip()


def test_without_a_terminal_it_says_so_and_prints_one_frame(store: Store, call: Call) -> None:
    ended = call("top")
    assert ended.code == ExitCode.DONE and "no terminal" in ended.complaint
    assert "job-a train" in ended.out


def test_a_dumb_terminal_gets_one_frame(store: Store, make_pane: MakePane) -> None:
    pane = make_pane(TERM="dumb")
    pane.type(f"TERM=dumb {TOP}; echo code $?")
    pane.wait_for("no terminal that can be drawn on", "code 0")


def test_ascii_and_no_colours(store: Store) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "NO_COLOR": "1"}
    done = subprocess.run([*SLICELOCK, "top", "--once"], env=env, capture_output=True, timeout=60, check=True)
    assert done.stdout.isascii() and b"A job-a train" in done.stdout and b"\x1b" not in done.stdout


def test_without_redis_once_is_an_error(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICELOCK_REDIS_URL", "redis://127.0.0.1:1/0")
    ended = call("top", "--once")
    assert ended.code == ExitCode.UNREACHABLE and "127.0.0.1:1" in ended.complaint
    monkeypatch.delenv("SLICELOCK_REDIS_URL")
    assert "SLICELOCK_REDIS_URL" in call("top").complaint


def test_a_view_that_cannot_reach_redis_says_so_and_waits(make_pane: MakePane) -> None:
    pane = make_pane(SLICELOCK_REDIS_URL="redis://127.0.0.1:1/0")
    pane.type(TOP)
    pane.wait_for("127.0.0.1:1 cannot be reached", "no answer")
    pane.keys("q")
    pane.wait_for(PROMPT)


def test_keys_in_a_burst_are_all_heard_and_drawn_together(store: Store, make_pane: MakePane) -> None:
    pane = make_pane()
    pane.type(TOP)
    pane.wait_for("job-a train")
    pane.keys(*("j", "k") * 50, "End")
    wait_until(lambda: "── trainers" in pane.screen(), what="the last key's effect")

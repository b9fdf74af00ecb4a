"""`slicelock timeline`: the file that it writes."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from threading import Thread

import pytest

from slicelock.cli.failures import ExitCode
from tests.cli.conftest import Call
from tests.cli.programs import program
from tests.support.world import World

pytestmark = pytest.mark.usefixtures("slicelock_env")


@pytest.fixture(autouse=True)
def some_history(world: World) -> None:
    world.declare("a", "n1")
    world.serve()
    world.member("r1").hold("a", phase="train")


def test_a_page(call: Call, tmp_path: Path) -> None:
    ended = call("timeline", "--out", str(tmp_path / "t.html"))
    assert ended.code == ExitCode.DONE and ended.out == ""
    assert ended.complaint == f"Wrote {tmp_path / 't.html'} (5 events)."
    text = (tmp_path / "t.html").read_text()
    assert text.startswith("<!doctype html>") and "job-r1" in text
    assert [one.name for one in tmp_path.iterdir()] == ["t.html"]


def test_for_perfetto(call: Call, tmp_path: Path) -> None:
    call("timeline", "-o", str(tmp_path / "t.json"), "--format", "perfetto", "--since", "1h")
    told = json.loads((tmp_path / "t.json").read_text())
    assert any(one["name"] == "train" for one in told["traceEvents"])


def test_standard_output(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    ended = call("timeline", "--out", "-")
    assert ended.code == ExitCode.DONE and ended.err == ""
    assert ended.out.startswith("<!doctype html>") and "job-r1" in ended.out
    assert json.loads(call("timeline", "-o", "-", "--format", "perfetto").out)["traceEvents"]
    assert not list(tmp_path.iterdir()), "no file of that name"
    call("timeline", "-o", "./-")
    assert [one.name for one in tmp_path.iterdir()] == ["-"], "which is written as ./-"


def test_standard_output_has_the_same_bytes_whatever_the_locale(tmp_path: Path) -> None:
    with program("timeline", "-o", "-", env={"PYTHONIOENCODING": "ascii"}) as process:
        out, err = process.communicate(timeout=60)
    assert (process.returncode, err) == (ExitCode.DONE, "") and "·" in out


def test_a_file_that_is_there_is_replaced(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.html"
    path.write_text("old")
    call("timeline", "--out", str(path))
    assert "old" not in path.read_text()[:100]


def test_a_file_that_cannot_be_written(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "nowhere" / "t.html"
    ended = call("timeline", "--out", str(path))
    assert ended.code == ExitCode.OTHER
    assert "was not written: No such file or directory" in ended.complaint and "--out" in ended.complaint
    (tmp_path / "folder").mkdir()
    assert "was not written" in call("timeline", "--out", str(tmp_path / "folder")).complaint
    assert [one.name for one in tmp_path.iterdir()] == ["folder"]


def test_a_file_keeps_its_mode(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.html"
    path.touch(0o600)
    assert call("timeline", "--out", str(path)).code == ExitCode.DONE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 and path.stat().st_size > 0


@pytest.mark.parametrize("there", [True, False])
def test_a_link_stays_one(call: Call, tmp_path: Path, there: bool) -> None:
    link, target = tmp_path / "link", tmp_path / "target"
    link.symlink_to("target")
    if there:
        target.touch()
    assert call("timeline", "--out", str(link)).code == ExitCode.DONE
    assert link.is_symlink() and target.read_text().startswith("<!doctype html>")


def test_links_in_a_circle(call: Call, tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    assert "was not written" in call("timeline", "--out", str(tmp_path / "a")).complaint


def test_a_pipe_gets_the_text_and_stays_one(call: Call, tmp_path: Path) -> None:
    path, got = tmp_path / "pipe", list[str]()
    os.mkfifo(path)
    keeper = os.open(path, os.O_RDWR)  # no open() waits for the other end
    with path.open() as source:
        reader = Thread(target=lambda: got.append(source.read()))
        reader.start()
        ended = call("timeline", "--out", str(path))
        os.close(keeper)
        reader.join()
    assert ended.code == ExitCode.DONE and path.is_fifo()
    assert got[0].startswith("<!doctype html>")


def test_a_device_stays_one(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "null"
    try:
        os.mknod(path, 0o666 | stat.S_IFCHR, os.makedev(1, 3))
        path.write_text("")
    except PermissionError:
        pytest.skip("only root makes devices, where the file system allows them")
    assert call("timeline", "--out", str(path)).code == ExitCode.DONE
    assert path.is_char_device()


@pytest.mark.parametrize("path", ["", "/", "."])
def test_a_folder_is_no_file(call: Call, path: str) -> None:
    ended = call("timeline", "-o", path)
    assert ended.code == ExitCode.OTHER
    assert "was not written: Is a directory" in ended.complaint and "--out" in ended.complaint

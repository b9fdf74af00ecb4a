"""The timeline in a real browser: what it shows, what a click tells, zoom, keys, themes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from slicelock.bench.day import day
from slicelock.events import Event
from slicelock.history import History
from slicelock.history.drawing import drawing
from slicelock.history.page import page
from slicelock.history.report import report
from tests.browser.conftest import Open
from tests.support.history import Story
from tests.support.wait import wait_until

NASTY = '</script><img src=x onerror="document.title=1">&"\'`${1}'
PNG = b"\x89PNG"


def html_of(history: History, pool: str = "lab") -> str:
    return page(drawing(history, report(history, devices={"s": 8}), pool))


def story() -> Story:
    told = Story().at(0).held("alpha", 1, phase="generate").at(4).queued("beta", 1)
    told.at(10).ended("alpha", 1, held=10, phase="generate").switching("beta", 1)
    steps = (
        '[{"step":"offload","run":"alpha-1","way":"hooks","bytes":24000000000,"seconds":0.5},'
        '{"step":"reload","run":"beta-1","way":"hooks","bytes":12000000000,"seconds":0.25}]'
    )
    told.at(12).ready("beta", 1, bytes=36_000_000_000, seconds=1.9, steps=steps)
    told.held("beta", 1, waited=8, phase="train").at(15).queued("alpha", 2)
    told.at(20).ended("beta", 1, held=8, phase="train")
    told.tell("blocked", slice="s", node="n1", kind="silent", reason="node n1 is silent")
    told.at(23).tell("healed", slice="s", node="n1").switching("alpha", 2).at(24).ready("alpha", 2)
    return told.held("alpha", 2, waited=9, phase="sync").at(40).ended("alpha", 2, held=16, phase="sync")


@pytest.fixture(scope="module")
def small() -> str:
    return html_of(story().history())


@pytest.fixture
def tab(small: str, open_page: Open) -> Iterator[Any]:
    yield open_page(small)


def spot(tab: Any, request: str) -> tuple[float, float]:
    """Where the middle of a request's turn or wait is on the screen."""
    return tuple(
        tab.evaluate(
            """request => {
                const item = timeline.itemOf(request);
                const box = document.getElementById("plot").getBoundingClientRect();
                const middle = (item.spans.from(item.place) + item.spans.to(item.place)) / 2;
                return [box.left + timeline.xOf(middle), box.top + item.row.y + item.row.height / 2];
            }""",
            request,
        )
    )


def seen(tab: Any) -> tuple[float, float]:
    """The visible time in seconds."""
    return tuple(round(ms / 1000, 2) for ms in tab.evaluate("[timeline.view.from, timeline.view.to]"))


def colour_at(tab: Any, x: float, y: float) -> list[int]:
    """The pixel of the plot under a point of the screen."""
    return tab.evaluate(
        """([x, y]) => {
            const plot = document.getElementById("plot"), ratio = devicePixelRatio;
            const box = plot.getBoundingClientRect();
            const pen = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
            pen.drawImage(plot, -(x - box.left) * ratio, -(y - box.top) * ratio);
            return [...pen.getImageData(0, 0, 1, 1).data];
        }""",
        [x, y],
    )


# ---------------------------------------------------------------- what it shows


def test_the_figures_are_the_reports(tab: Any) -> None:
    figures = report(story().history(), devices={"s": 8})
    text = tab.inner_text("#report")
    assert figures.saved_share < 0
    assert f"lost by sharing, {-figures.saved_share:.0%}:".replace("%", " %") in text
    assert "alpha" in text and "beta" in text
    assert "in use 85 %" in text
    assert "idle while somebody waited: switching 3.00 s, blocked 3.00 s" in text
    assert "held by beta 5.00 s" in text
    assert tab.inner_text("#pool") == "lab"
    assert tab.title() == "lab: slicelock timeline"


def test_every_slice_and_job_has_a_row(tab: Any) -> None:
    assert tab.locator(".label.slice").all_inner_texts() == ["s 85 %"]
    assert tab.locator(".label.job").all_inner_texts() == ["alpha", "beta"]


def test_turns_are_coloured_by_phase_and_the_legend_says_how(tab: Any) -> None:
    legend = {
        text: tab.locator("#legend span", has_text=text)
        .locator("i")
        .evaluate("i => getComputedStyle(i).backgroundColor")
        for text in ("generate", "train", "sync")
    }
    assert len(set(legend.values())) == 3
    for request, phase in (("alpha-1/main/1", "generate"), ("beta-1/main/1", "train")):
        x, y = spot(tab, request)
        red, green, blue, _ = colour_at(tab, x + 30, y + 6)
        assert legend[phase] == f"rgb({red}, {green}, {blue})"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 2560])
def test_a_picture_of_it(small: str, open_page: Open, scheme: str, width: int) -> None:
    tab = open_page(small, width=width, scheme=scheme)
    assert tab.evaluate("document.documentElement.dataset.theme") == scheme
    picture = tab.screenshot()
    assert picture.startswith(PNG) and len(picture) > 20_000


def test_a_narrow_page_lacks_nothing(small: str, open_page: Open) -> None:
    tab = open_page(small, width=420, height=800)
    inside = (
        "one => { const box = one.getBoundingClientRect(); return box.left >= 0 && box.right <= innerWidth; }"
    )
    for part in ("nav button", "#plot", "aside h2", "aside table", ".label"):
        assert all(one.evaluate(inside) for one in tab.locator(part).all()), part
    assert tab.evaluate("document.documentElement.scrollWidth") == 420
    width = tab.evaluate("timeline.xOf(40000) - timeline.xOf(0)")
    assert width > 420 * 0.7, "most of it is the timeline"
    tab.mouse.click(*spot(tab, "beta-1/main/1"))
    assert tab.locator("#tip").evaluate(inside)


def test_nothing_has_happened(open_page: Open) -> None:
    tab = open_page(html_of(History()))
    assert "No turn yet" in tab.inner_text("#report")
    tab.keyboard.press("+")
    tab.keyboard.press("n")


def test_a_name_is_only_text(open_page: Open) -> None:
    told = Story().at(0).held(NASTY, 1, phase=NASTY).at(5).ended(NASTY, 1, held=5, phase=NASTY)
    tab = open_page(html_of(told.history(), pool=NASTY))
    assert tab.locator(".label.job").inner_text() == NASTY
    assert tab.locator("img").count() == 0
    tab.mouse.move(*spot(tab, f"{NASTY}-1/main/1"))
    assert NASTY in tab.inner_text("#tip")
    assert tab.title() == f"{NASTY}: slicelock timeline"


# ---------------------------------------------------------------- what it tells


def test_hovering_tells_about_a_turn(tab: Any) -> None:
    assert tab.locator("#tip").is_hidden()
    tab.mouse.move(*spot(tab, "beta-1/main/1"))
    text = tab.inner_text("#tip")
    assert text.startswith("beta train")
    for fact in ("8.00 s", "beta-1/main/1", "yielded", "36 GB", "alpha-1 by hooks: 24 GB at 48.0 GB/s"):
        assert fact in text
    tab.mouse.move(600, 740)
    assert tab.locator("#tip").is_hidden()


def test_a_click_pins_it_and_escape_lets_go(tab: Any) -> None:
    tab.mouse.click(*spot(tab, "beta-1/main/1"))
    tab.mouse.move(600, 740)
    assert "pinned" in tab.get_attribute("#tip", "class")
    assert tab.locator("#tip").is_visible()
    tab.keyboard.press("Escape")
    assert tab.locator("#tip").is_hidden()


def test_a_switch_and_a_block_are_told_too(tab: Any) -> None:
    x, y = spot(tab, "beta-1/main/1")
    a_second = tab.evaluate("timeline.xOf(1000) - timeline.xOf(0)")
    tab.mouse.move(x - 5 * a_second, y)  # 11 s: the switch before the turn
    assert "Switch alpha → beta" in tab.inner_text("#tip")
    top = tab.evaluate("document.getElementById('plot').getBoundingClientRect().top + timeline.rows[0].y")
    tab.mouse.move(x + 5.5 * a_second, top + 3)
    assert "node n1 is silent" in tab.inner_text("#tip")


def test_a_long_wait_is_one_click_away(tab: Any) -> None:
    tab.locator("button.wait").first.click()
    begin, end = seen(tab)
    assert 5 < begin < 15 and 24 < end < 35
    assert "alpha" in tab.inner_text("#tip")
    tab.keyboard.press("n")
    assert "beta" in tab.inner_text("#tip")
    tab.keyboard.press("p")
    assert "alpha" in tab.inner_text("#tip")


# ---------------------------------------------------------------- zoom


def test_the_wheel_zooms_where_the_pointer_is(tab: Any) -> None:
    x, y = spot(tab, "beta-1/main/1")
    tab.mouse.move(x, y)
    tab.mouse.wheel(0, -300)
    begin, end = seen(tab)
    assert end - begin < 25
    assert abs((begin + end) / 2 - 16) < 4
    assert abs(spot(tab, "beta-1/main/1")[0] - x) < 2
    tab.mouse.wheel(0, 3000)
    tab.mouse.wheel(0, 3000)
    tab.mouse.wheel(0, 3000)
    assert seen(tab) == (0, 40)


def test_a_drag_moves_and_a_double_click_shows_everything(tab: Any) -> None:
    tab.keyboard.press("+")
    before = seen(tab)
    tab.mouse.move(700, 600)
    tab.mouse.down()
    tab.mouse.move(600, 600, steps=3)
    tab.mouse.up()
    after = seen(tab)
    assert after[0] > before[0] and after[1] - after[0] == pytest.approx(before[1] - before[0], abs=0.02)
    tab.mouse.dblclick(700, 600)
    assert seen(tab) == (0, 40)


def test_shift_and_drag_choose_a_part(tab: Any) -> None:
    left, right = (tab.evaluate(f"timeline.xOf({ms})") for ms in (10_000, 20_000))
    tab.keyboard.down("Shift")
    tab.mouse.move(left, 600)
    tab.mouse.down()
    tab.mouse.move(right, 600, steps=3)
    tab.mouse.up()
    tab.keyboard.up("Shift")
    assert seen(tab) == (pytest.approx(10, abs=0.1), pytest.approx(20, abs=0.1))


def test_the_strip_chooses_a_part(tab: Any) -> None:
    box = tab.locator("#overview").bounding_box()
    left, right = (tab.evaluate(f"timeline.xOf({ms})") for ms in (30_000, 40_000))
    tab.mouse.move(box["x"] + left, box["y"] + 20)
    tab.mouse.down()
    tab.mouse.move(box["x"] + right, box["y"] + 20, steps=3)
    tab.mouse.up()
    assert seen(tab) == (pytest.approx(30, abs=0.2), pytest.approx(40, abs=0.2))
    tab.mouse.click(box["x"] + left - 200, box["y"] + 20)
    assert seen(tab)[0] < 25


def test_keys_and_buttons(tab: Any) -> None:
    for _ in range(3):
        tab.keyboard.press("+")
    begin, end = seen(tab)
    tab.keyboard.press("ArrowLeft")
    assert seen(tab)[0] < begin
    tab.keyboard.press("ArrowRight")
    assert seen(tab) == (begin, end)
    tab.click("#out")
    assert seen(tab)[1] - seen(tab)[0] > end - begin
    tab.click("#in")
    tab.click("#fit")
    assert seen(tab) == (0, 40)
    tab.click("#theme")
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    tab.click("#side")
    assert tab.locator("#report").is_hidden()
    tab.click("#keys")
    assert "zoom" in tab.inner_text("#help")
    tab.keyboard.press("Escape")
    assert tab.locator("#help").is_hidden()


def test_it_cannot_be_zoomed_beyond_sense(tab: Any) -> None:
    for _ in range(60):
        tab.keyboard.press("+")
    assert 0 < tab.evaluate("timeline.view.to - timeline.view.from") <= 10


# ---------------------------------------------------------------- much of it


def test_a_hundred_thousand_events(open_page: Open) -> None:
    events = [Event.of(f"{at}-{number}", fields) for number, (at, fields) in enumerate(day(100_000))]
    tab = open_page(html_of(History(events)))
    assert tab.locator(".label.job").count() == 6
    tab.locator("button.wait").first.click()
    assert tab.locator("#tip").is_visible()
    tab.keyboard.press("0")


def test_more_rows_than_fit_can_be_scrolled(open_page: Open) -> None:
    told = Story("s")
    for number in range(60):
        told.at(number).turn(f"job-{number:02}", 1, held=0.5, phase="train")
    tab = open_page(html_of(told.history()))
    tab.evaluate("document.getElementById('rows').scrollTop = 1e6")
    assert tab.locator(".label.job").last.is_visible()
    tab.mouse.move(60, 500)
    tab.mouse.wheel(0, -5000)
    wait_until(lambda: tab.evaluate("document.getElementById('rows').scrollTop") == 0)

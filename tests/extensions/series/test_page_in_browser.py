"""The page of a series in a real browser: its film, and plots that lead to frames."""

import pytest

from ...report.browser import SOFTWARE, Opened, chromium, started

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def opened(finished):
    chromium()
    with started() as start:
        opened = Opened(start(*SOFTWARE), finished[0].folder / "series.html")
        yield opened
        opened.close()


def slider(opened):
    return opened.page.get_by_role("slider", name="Volume", exact=True)


def test_it_opens_without_errors_or_network(opened):
    assert opened.said == [] and len(opened.asked) == 1
    assert opened.page.locator(".drawing .main-svg").count() >= 3


def test_a_frame_shows_its_model_its_map_and_a_line_in_the_plots(opened):
    pictures = []
    for number in range(3):
        slider(opened).fill(str(number))
        pictures.append(opened.pixels())
        assert f"{number + 1} · vol_{number + 1}.mrc" in opened.page.locator("#controls").inner_text()
        shown = "report.surfaces.frames.indexOf(report.scene.frameMap)"
        assert opened.page.evaluate(shown) == number
        line = "document.querySelector('[data-figure=correlations]').layout.shapes.map((each) => each.x0)"
        assert opened.page.evaluate(line) == [number + 1]
    assert len(set(pictures)) == 3
    opened.page.get_by_role("button", name="End the film and show the last model").click()
    assert opened.page.evaluate(line) == [] and opened.page.evaluate("report.scene.frameMap") is None


def test_a_click_in_a_plot_shows_that_frame(opened):
    opened.page.locator("[data-figure=correlations]").scroll_into_view_if_needed()
    opened.page.evaluate("report.showFrame(1)")
    point = (
        opened.page.locator("[data-figure=correlations] .scatterlayer .trace").first.locator(".point").first
    )
    box = point.bounding_box()
    opened.page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.wait_until("document.querySelector('[aria-label=Volume]').value === '0'")


def test_it_plays(opened):
    play = opened.page.get_by_role("button", name="Play the series as a film")
    opened.page.evaluate("report.showFrame(2)")
    play.click()
    assert slider(opened).input_value() == "0"
    play.click()
    assert opened.said == []

"""The report of a real fit in a real browser: it is drawn, answers clicks, asks no network, and prints."""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import replace
from io import BytesIO
from itertools import pairwise

import gemmi
import pytest
from matplotlib.image import imread

from openmm_density import DensityMap
from openmm_density.fitting import FlexibleFit, find_protocol
from openmm_density.models import read_model
from openmm_density.report import OutputFolder
from openmm_density.report.fit_page import fit_page, read_contents
from openmm_density.report.page import write_page

from .browser import SOFTWARE, WITHOUT, Opened, chromium, started

pytestmark = pytest.mark.browser

RESOLUTION = 3.64


@pytest.fixture(scope="module")
def folder(small_data, tmp_path_factory, drawing):
    """Return the results of a short fit into EMD-5925 of its own model, moved away."""
    chromium()
    data, path = small_data / "emd5925_frag", tmp_path_factory.mktemp("browser")
    structure = gemmi.read_structure(str(data / "5925_native.pdb"))
    structure[0].transform_pos_and_adp(gemmi.Transform(gemmi.Mat33(), gemmi.Vec3(0.9, -0.7, 0.8)))
    structure.write_pdb(str(path / "model.pdb"))
    quick = find_protocol("quick", RESOLUTION)
    changes = {"strength": 50.0, "minimize_first": 5, "minimize_last": 30, "search": "off"}
    protocol = replace(quick, **changes).with_steps(20)
    fit = FlexibleFit(
        read_model(path / "model.pdb"),
        DensityMap.from_file(data / "emd5925.mrc.gz"),
        RESOLUTION,
        protocol,
        threads=1,
        report_interval=5,
        place="off",
        reference=read_model(data / "5925_native.pdb"),
    )
    output = OutputFolder(path / "out")
    with drawing():
        found = output.write(fit, fit.run(output.run), str(path / "model.pdb"), str(data / "emd5925.mrc.gz"))
    output.discard()
    assert found["kept"] == "after"
    return output.path


@pytest.fixture(scope="module")
def start():
    with started() as start:
        yield start


@pytest.fixture(scope="module")
def browser(start):
    return start(*SOFTWARE)


@pytest.fixture(scope="module")
def opened(browser, folder):
    opened = Opened(browser, folder / "report.html")
    yield opened
    opened.close()


def pressed(opened, role, name):
    return opened.page.get_by_role(role, name=name, exact=True)


def share_of_other_pixels(first, second):
    """Return the share of the pixels that differ between two pictures, given as addresses of data."""
    first, second = (imread(BytesIO(b64decode(picture.split(b",")[1]))) for picture in (first, second))
    return (first != second).any(axis=-1).mean()


def test_it_opens_without_errors_or_network(opened, folder):
    assert opened.said == []
    assert opened.asked == [(folder / "report.html").as_uri()]
    drawn = opened.page.locator(".drawing .main-svg").count()
    assert drawn >= 2 * opened.page.locator(".drawing").count() >= 10
    # Nor does it offer to: the plotting library can upload figures.
    assert opened.page.locator(".modebar-btn").count() > 10
    titles = opened.page.locator(".modebar-btn").evaluate_all("all => all.map((each) => each.dataset.title)")
    assert not [title for title in titles if re.search("share|cloud|edit", title, re.I)]


def test_models_are_drawn_and_hidden(opened):
    box = pressed(opened, "checkbox", "after")
    shown = opened.pixels()
    box.uncheck()
    hidden = opened.pixels()
    box.check()
    # Drawn in another order, some pixels where surfaces meet are others: 6 of 270 000, where hiding changes 20 000.
    assert share_of_other_pixels(shown, hidden) > 0.01 > 100 * share_of_other_pixels(shown, opened.pixels())
    reference = pressed(opened, "checkbox", "reference")
    reference.check()
    assert opened.pixels() not in (shown, hidden)
    reference.uncheck()


def test_the_slider_changes_the_surface(opened):
    def vertices():
        return opened.page.evaluate(
            "report.scene.shapes.get('map')[0].geo.geometryGroups.reduce((sum, group) => sum + group.vertices, 0)"
        )

    slider, before, text = opened.page.locator("#level"), vertices(), opened.page.locator("output[for=level]")
    said, looked = text.inner_text(), opened.pixels()
    assert "σ" in said and before > 500
    slider.focus()
    for _ in range(12):
        slider.press("ArrowRight")
    final = float(text.inner_text().split()[0])
    # It follows the slider when that rests, at the level that is written, with three digits.
    opened.wait_until(f"Math.abs(report.scene.levels.map / {final} - 1) < 0.01")
    assert final > float(said.split()[0]) and vertices() != before and opened.pixels() != looked
    pressed(opened, "checkbox", "difference, model − map").check()
    assert opened.page.evaluate("report.scene.shapes.get('difference').length") == 2
    pressed(opened, "checkbox", "difference, model − map").uncheck()
    assert opened.page.evaluate("report.scene.shapes.has('difference')") is False


def test_a_click_in_a_plot_turns_the_view(opened):
    points = opened.page.locator("#agreement .scatterlayer .points path")
    points.nth(40).scroll_into_view_if_needed()
    before, box = opened.view(), points.nth(40).bounding_box()
    opened.page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.page.wait_for_selector("#agreement .hoverlayer .hovertext")
    hovered = opened.page.locator("#agreement .hoverlayer").text_content()
    opened.page.mouse.down()
    opened.page.mouse.up()
    opened.wait_until("document.getElementById('selected').textContent.includes('correlation')")
    said = opened.page.locator("#selected").inner_text()
    # As the pointer said, by chain, name and number.
    assert re.match(r"\w \w+ \d+", said)[0] in hovered
    assert opened.view() != before
    assert opened.page.locator("#selected").get_attribute("aria-live") == "polite"


def test_a_row_of_the_table_and_a_button_turn_it_too(opened, folder):
    opened.page.get_by_label("Find a residue").fill("lys")
    row = opened.page.locator(".residues tbody tr").nth(1)
    before, name = opened.view(), row.locator("button").inner_text()
    row.locator("td").first.click()
    assert name.split()[1] == "LYS" and opened.page.locator("#selected").inner_text().startswith(name)
    turned = opened.view()
    assert turned != before and "selected" in row.get_attribute("class")
    opened.page.get_by_label("Find a residue").fill("")
    buttons = opened.page.locator("main button.show[data-rows]:not([data-rows=''])")
    buttons.first.focus()
    opened.page.keyboard.press("Enter")
    assert opened.view() != turned and buttons.first.get_attribute("aria-pressed") == "true"
    pressed(opened, "button", "Show all of the model").click()
    assert opened.page.locator("#selected").inner_text() == "The whole model."


def test_the_fit_plays_as_a_film(opened):
    slider = opened.page.get_by_label("Frame of the fit")
    still = opened.pixels()
    play = pressed(opened, "button", "Play the fit as a film")
    play.click()
    assert play.get_attribute("aria-pressed") == "true"
    played = opened.pixels()
    assert slider.input_value() == "0"
    play.click()
    stopped = slider.input_value()
    assert play.get_attribute("aria-pressed") == "false"
    opened.page.wait_for_timeout(200)
    assert slider.input_value() == stopped
    pressed(opened, "button", "End the film and show the fitted model").click()
    # Drawn in another order, a few pixels of edges are another shade.
    assert share_of_other_pixels(opened.pixels(), still) < 0.001 < share_of_other_pixels(played, still)


@pytest.mark.parametrize("width", [390, 768])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_on_narrow_and_dark_windows_nothing_sticks_out(opened, width, scheme):
    page, usual = opened.page, opened.page.viewport_size
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 844})
    opened.wait_until(f"document.querySelector('.drawing .main-svg').clientWidth < {width}")
    assert page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth") == 0
    colors = [
        page.evaluate(f"getComputedStyle(document.body).{name}") for name in ("backgroundColor", "color")
    ]
    background, text = (sum(map(int, re.findall(r"\d+", color)[:3])) / 3 for color in colors)
    assert (background < text) == (scheme == "dark") and abs(background - text) > 150
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(usual)
    assert opened.said == []


def test_on_a_phone_tables_fit_and_no_button_lies_over_a_legend(browser, folder):
    looks = {"viewport": {"width": 390, "height": 844}, "is_mobile": True, "has_touch": True}
    opened = Opened(browser, folder / "report.html", **looks)
    opened.wait_until("document.querySelectorAll('.drawing .main-svg').length > 3")
    assert opened.page.locator(".modebar-btn").count() == 0
    beyond = "[...document.querySelectorAll('.scroll:not(.tall)')].map((each) => each.scrollWidth - each.clientWidth)"
    assert set(opened.page.evaluate(beyond)) == {0} and opened.said == []
    opened.close()


def test_everything_has_a_name_for_those_who_do_not_see_it(opened):
    tree = opened.page.locator("body").aria_snapshot()
    assert not re.search(
        r"^\s*- (button|slider|checkbox|img|combobox|table|link)(?! \")", tree, flags=re.M
    ), tree
    headings = opened.page.evaluate(
        "[...document.querySelectorAll('h1, h2, h3')].map((each) => Number(each.tagName[1]))"
    )
    assert headings[0] == 1 and headings.count(1) == 1
    assert all(following - level <= 1 for level, following in pairwise(headings))


def test_without_webgl_it_says_so_and_shows_the_picture(start, folder):
    opened = Opened(start(*WITHOUT), folder / "report.html")
    said = opened.page.locator("#no-webgl [role=status]")
    assert said.is_visible() and "WebGL" in said.inner_text()
    # The page does not wait for its pictures.
    assert (
        opened.page.locator("#no-webgl img").evaluate("each => each.decode().then(() => each.naturalWidth)")
        > 300
    )
    assert not opened.page.locator("#stage").is_visible()
    # Plots are there, and a click on what shows a residue still says which.
    opened.page.locator(".residues tbody button").first.click()
    assert "correlation" in opened.page.locator("#selected").inner_text()
    opened.close()


def test_names_are_shown_as_text(browser, folder, tmp_path):
    wild = "</script><script>document.title='taken'</script><img src=x onerror=alert(1)>\"'é漢"
    contents = read_contents(folder)
    summary = {
        **contents.summary,
        "given": [f"{wild}.pdb"],
        "map": "map&lt;.mrc",
        "notes": [wild],
        "protocol": wild,
    }
    summary["residues"] = [
        {**row, "residue": f"{wild} {row['residue']}", "chain": wild} for row in summary["residues"]
    ]
    summary["stages"] = [{**stage, "name": wild} for stage in summary["stages"]]
    write_page(tmp_path / "wild.html", fit_page(replace(contents, summary=summary)))
    opened = Opened(browser, tmp_path / "wild.html")
    assert opened.said == [] and len(opened.asked) == 1
    assert wild.rpartition("/")[2] in opened.page.title() and "map&lt;.mrc" in opened.page.title()
    body = opened.page.locator("body").inner_text()
    assert wild in body and f"{wild} {contents.summary['residues'][0]['residue']}" in body
    assert opened.page.locator("img[src=x]").count() == 0
    opened.page.locator(".residues tbody button").first.click()
    assert opened.page.locator("#selected").inner_text().startswith(wild)
    opened.close()

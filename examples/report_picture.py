"""Take the README's pictures of a report: python examples/report_picture.py REPORT PICTURE.

A picture named .png is of the report's first screen, one named .webp is the film of the fit in the surface of the map. It takes
playwright, Pillow and a Chromium (named by the variable CHROMIUM, where it is not called so). The README's are of `make demo`:

    python examples/report_picture.py demo/report.html examples/report.png
    python examples/report_picture.py demo/report.html examples/adenylate_kinase_fit.webp
"""

import io
import math
import os
import shutil
import sys
from pathlib import Path

import numpy as np
from PIL import Image
from playwright.sync_api import Page, sync_playwright

SCREEN = {"width": 1280, "height": 860}
# The processor draws where there is no GPU.
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
FILM_SIZE = 480
# What of it models and surface are in.
FILM_BOX = (70, 35, 410, 475)
FILM_FRAMES = 56
FRAME_MS, FIRST_MS, LAST_MS = 80, 800, 2500
# Degrees about the screen's y axis: where the film begins, from which its end is as far away on the other side.
SWING = 20.0


def first_screen(page: Page, picture: Path) -> None:
    """Save what is seen first, in 256 colours."""
    image = shot(page).resize((SCREEN["width"], SCREEN["height"]), Image.Resampling.LANCZOS)
    image.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


def film(page: Page, picture: Path) -> None:
    """Save the frames of the fit in the surface of the map, which turns a little meanwhile."""
    page.add_style_tag(
        content=f".stage {{ width: {FILM_SIZE}px !important; height: {FILM_SIZE}px !important; border: 0 }}"
    )
    page.evaluate("report.scene.viewer.resize(); report.select([]); report.scene.show('before', false)")
    last = page.evaluate("report.film.frames") - 1
    images, angle = [], 0.0
    for part in np.linspace(0.0, 1.0, FILM_FRAMES):
        # Most of the way is in the first frames.
        number, wanted = round(part**2 * last), -SWING * math.cos(math.pi * part)
        page.evaluate(f"report.scene.viewer.rotate({wanted - angle}, 'y'); report.scene.frame({number})")
        angle = wanted
        image = shot(page, "#stage").resize((FILM_SIZE, FILM_SIZE), Image.Resampling.LANCZOS)
        images.append(image.crop(FILM_BOX))
    durations = [FIRST_MS, *[FRAME_MS] * (FILM_FRAMES - 2), LAST_MS]
    images[0].save(
        picture, save_all=True, append_images=images[1:], duration=durations, loop=0, quality=70, method=6
    )


def shot(page: Page, selector: str | None = None) -> Image.Image:
    """Return the page, or one element of it, as it is drawn."""
    target = page.locator(selector) if selector else page
    return Image.open(io.BytesIO(target.screenshot())).convert("RGB")


def main(report: Path, picture: Path) -> None:
    """Open a report, and save the picture or film of it."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SCREEN, device_scale_factor=2, reduced_motion="reduce")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html.drawn", timeout=60_000)
        (film if picture.suffix == ".webp" else first_screen)(page, picture)
        browser.close()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

"""Take a picture of the first screen of a report, as it is in the README: python examples/report_picture.py REPORT PICTURE.

It takes playwright, Pillow and a Chromium (named by the variable CHROMIUM, where it is not called so). The README's is of

    openmm-density simulate examples/data/adk_closed.pdb --resolution 5 --voxel-size 1 --noise 0.1 --seed 1 --output closed.mrc
    openmm-density fit examples/data/adk_open.pdb closed.mrc --resolution 5 --reference examples/data/adk_closed.pdb --output run
    python examples/report_picture.py run/report.html examples/report.png
"""

import io
import os
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE = {"width": 1280, "height": 860}
# The processor draws where there is no GPU.
FLAGS = ["--no-sandbox", "--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]


def main(report: Path, picture: Path) -> None:
    """Open a report, and save what is seen first."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("google-chrome")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport=SIZE, device_scale_factor=2, reduced_motion="reduce")
        page.goto(report.resolve().as_uri())
        page.wait_for_selector("html.drawn", timeout=60_000)
        image = Image.open(io.BytesIO(page.screenshot()))
        browser.close()
    image = image.convert("RGB").resize((SIZE["width"], SIZE["height"]), Image.Resampling.LANCZOS)
    image.quantize(256, dither=Image.Dither.NONE).save(picture, optimize=True)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:3]))

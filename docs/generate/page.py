"""The picture of the service's page, as the demo with a holdout leaves it, for light and for dark.

python -m generate.page
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from generate.gallery import small
from tacit.demo import PLACEMENT, Traffic, build_scenario, running_service, send

IMAGES = Path(__file__).parents[1] / "images"
WIDTH = 1100
HOLDOUT = 0.1
LAST = "Share of each arm"
"""The heading above which the picture ends."""


def photograph(address: str, folder: Path) -> None:
    """Take a picture of the top of a placement's page in each scheme."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox", "--disable-gpu"]
        )
        for scheme in ("light", "dark"):
            page = browser.new_page(color_scheme=scheme, viewport={"width": WIDTH, "height": 800})
            page.goto(f"{address}placements/{PLACEMENT}?range=all")
            end = page.get_by_role("heading", name=LAST).bounding_box()
            assert end is not None
            path = folder / f"{scheme}.png"
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": end["y"] - 16}
            page.screenshot(path=path, full_page=True, clip=clip)
            (IMAGES / f"page-{scheme}.png").write_bytes(small(path, colours=256))
        browser.close()


def main() -> None:
    """Play the demo and photograph its page."""
    scene = build_scenario(None, None, None, 1, HOLDOUT)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with running_service(scene, folder, 0) as address:
            send(scene, Traffic.draw(scene), address)
            photograph(address, folder)


if __name__ == "__main__":
    main()

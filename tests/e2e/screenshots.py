"""Keep screenshots of every page, light, dark and narrow: `python -m tests.e2e.screenshots FOLDER [PAGE ...]`."""

import sys
import tempfile
from pathlib import Path

from tests.e2e.dashboard import PAGES, Board, Visitor, fill, open_browser

LOOKS = {
    "light": {"color_scheme": "light", "viewport": {"width": 1440, "height": 900}},
    "dark": {"color_scheme": "dark", "viewport": {"width": 1440, "height": 900}},
    "narrow": {"color_scheme": "light", "viewport": {"width": 360, "height": 740}},
}


def main(folder: Path, wanted: list[str]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as home, open_browser() as browser:
        board = Board(Path(home))
        try:
            pages = {**PAGES, **fill(board)}
            for look, options in LOOKS.items():
                visitor = Visitor(browser.new_context(**options), board)  # pyright: ignore[reportArgumentType] -- as the API names them
                visitor.page.goto(board.url)
                visitor.page.get_by_label("Access token").wait_for()
                visitor.page.screenshot(path=folder / f"sign-in-{look}.png")
                visitor.sign_in()
                for name, path in pages.items():
                    if not wanted or name in wanted:
                        visitor.see(path)
                        visitor.page.wait_for_timeout(250)
                        visitor.page.screenshot(path=folder / f"{name}-{look}.png")
                for complaint in visitor.complaints:
                    print(look, complaint)
                for url in visitor.foreign_requests():
                    print(look, "foreign", url)
        finally:
            board.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])

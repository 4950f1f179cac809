"""The plan of the run in progress, above the message: it stays in sight while the transcript moves."""

from rich.text import Text
from textual.widgets import Static

from treadle.domain.plans import PLAN_MARKS, extract_plan, is_finished, summarize_plan
from treadle.domain.transcript import PlanStep
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts

HEIGHT_SHARE = 0.2
MIN_STEPS, MAX_STEPS = 3, 8


class PlanPanel(Static):
    """Shows the steps around the current one. Hidden without a plan."""

    DEFAULT_CSS = """
    PlanPanel { height: auto; padding: 0 2; background: $background; display: none; }
    """

    def __init__(self, palette: Palette) -> None:
        super().__init__()
        self.palette = palette
        self._drawn: tuple[tuple[PlanStep, ...], int, int, str] | None = None

    def show(self, steps: tuple[PlanStep, ...]) -> None:
        """Show a plan; hide the panel if it is empty or finished."""
        if not self.is_attached:  # the app has just begun, or is about to end
            return
        screen = self.screen.size
        drawn = (steps, screen.width, screen.height, self.palette.name)
        if drawn == self._drawn:
            return
        self._drawn = drawn
        self.display = bool(steps) and not is_finished(steps)
        if self.display:
            most = max(MIN_STEPS, min(MAX_STEPS, int(screen.height * HEIGHT_SHARE)))
            self.update(self._draw(steps, max(20, screen.width - 6), most))

    def _draw(self, steps: tuple[PlanStep, ...], width: int, most: int) -> Text:
        palette, extract = self.palette, extract_plan(steps, most)
        rows = [Text(one_line(texts.PLAN.format(summary=summarize_plan(steps)), width), palette.dim, no_wrap=True)]
        for step in extract.steps:
            style = {
                "completed": palette.dim,
                "in_progress": palette.text + palette.strong,
                "pending": palette.text,
            }[step.status]
            rows.append(Text(one_line(f"{PLAN_MARKS[step.status]} {step.text}", width), style, no_wrap=True))
        left_out = extract.before + extract.after
        if left_out:
            rows[0].append(texts.PLAN_LEFT_OUT.format(count=left_out), palette.dim)
            rows[0].truncate(width)
        return Text("\n").join(rows)

"""Whether a run is what kills its workers: what its journal says about the deaths that it was executing at.

A death counts until the run makes progress. One at which no other run was executing is evidence against the run.
One in company makes it a suspect, which then runs alone until it has made progress or has died again. Deaths of
other workers in the same minutes speak for the run: they had another cause."""

from dataclasses import dataclass

from treadle.domain.events import RunRecovered

SUSPECT_DEATHS = 2
"""Deaths without progress after which a run must run alone."""
CULPRIT_DEATHS = 3
"""Deaths without progress after which one more ends the run."""
COMPANY_SHARE = 4
"""After the first two, so many deaths in company count as one: a run may kill its worker slowly."""
MAX_DOUBT = 6
"""The most deaths that unexplained deaths of other workers add to what it takes to end a run."""
MODEL_CALL = ""
"""The activity of a run that has no tool call in progress."""


@dataclass(slots=True)
class Suspicion:
    """The deaths in a row that a run was executing at, without progress since."""

    alone: int = 0
    in_company: int = 0
    unexplained: int = 0
    """Deaths of workers of the last minutes at which this run was not executing."""
    activities: frozenset[str] = frozenset()
    """The tools that it was running at each of these deaths, or `MODEL_CALL`: to finish one of them is progress."""

    def count_death(self, death: RunRecovered, activities: frozenset[str]) -> None:
        if death.alone:
            self.alone += 1
        else:
            self.in_company += 1
        self.unexplained = max(0, death.deaths_lately - self.alone - self.in_company)
        self.activities = (self.activities & activities) or activities

    def finish(self, activity: str) -> None:
        """Drop the suspicion if the run has done what it had died at."""
        if activity in self.activities:
            self.clear()

    def clear(self) -> None:
        self.alone = self.in_company = self.unexplained = 0
        self.activities = frozenset()

    @property
    def deaths(self) -> int:
        """The deaths that count."""
        early = min(self.in_company, SUSPECT_DEATHS)
        return self.alone + early + (self.in_company - early) // COMPANY_SHARE

    @property
    def is_culprit(self) -> bool:
        return self.deaths > CULPRIT_DEATHS + min(MAX_DOUBT, self.unexplained)

    @property
    def is_suspect(self) -> bool:
        return self.deaths >= SUSPECT_DEATHS and not self.is_culprit

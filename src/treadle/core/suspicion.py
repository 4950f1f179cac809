"""Suspicion that a run kills its workers, from the deaths in its journal.

A death counts until the run makes progress. A death while no other run was executing is evidence against the run.
A death in company makes it a suspect, which then runs alone until it makes progress or dies again. Deaths of other
workers in the same minutes speak for the run: they had another cause."""

from dataclasses import dataclass

from treadle.domain.events import RunRecovered

SUSPECT_DEATHS = 2
"""Deaths without progress after which a run must run alone."""
CULPRIT_DEATHS = 3
"""Deaths without progress after which one more ends the run."""
COMPANY_SHARE = 4
"""After the first two, this many deaths in company count as one: a run may kill its worker slowly."""
MAX_DOUBT = 6
"""Maximum number of additional deaths that unexplained deaths of other workers allow a run."""
MODEL_CALL = ""
"""The activity of a run that has no tool call in progress."""


@dataclass(slots=True)
class Suspicion:
    """The consecutive deaths during which a run was executing, without progress since."""

    deaths_alone: int = 0
    deaths_in_company: int = 0
    unexplained: int = 0
    """Recent deaths of workers that were not executing this run."""
    activities: frozenset[str] = frozenset()
    """The tools that were running at each of these deaths, or `MODEL_CALL`. Finishing one of them is progress."""

    def count_death(self, death: RunRecovered, activities: frozenset[str]) -> None:
        if death.alone:
            self.deaths_alone += 1
        else:
            self.deaths_in_company += 1
        self.unexplained = max(0, death.deaths_lately - self.deaths_alone - self.deaths_in_company)
        self.activities = (self.activities & activities) or activities

    def finish(self, activity: str) -> None:
        """Clear the suspicion if the run has finished an activity that it died in."""
        if activity in self.activities:
            self.clear()

    def clear(self) -> None:
        self.deaths_alone = self.deaths_in_company = self.unexplained = 0
        self.activities = frozenset()

    @property
    def deaths(self) -> int:
        """The deaths that count."""
        if not self.deaths_in_company:
            return self.deaths_alone
        early = min(self.deaths_in_company, SUSPECT_DEATHS)
        return self.deaths_alone + early + (self.deaths_in_company - early) // COMPANY_SHARE

    @property
    def is_culprit(self) -> bool:
        return self.deaths > CULPRIT_DEATHS + min(MAX_DOUBT, self.unexplained)

    @property
    def is_suspect(self) -> bool:
        return self.deaths >= SUSPECT_DEATHS and not self.is_culprit

"""Suspicion that a run kills its workers, from the deaths and trials in its journal.

A worker dies with every run that it executes. After two deaths without progress, each of these runs is a suspect
and executes in trials. A death in a trial with others narrows the search to the members of that trial. Only the
deaths of a run that was the only member count towards quarantine. Deaths of other workers in the same minutes
speak for the run: they had another cause."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from treadle.domain.events import RunRecovered, TrialStarted
from treadle.domain.ids import RunId

SUSPECT_DEATHS = 2
"""Deaths without progress after which a run executes in trials."""
CULPRIT_DEATHS = 3
"""Deaths as the only member of a trial that end the run."""
MAX_DOUBT = 6
"""Maximum number of additional deaths that unexplained deaths of other workers allow a run."""
MODEL_CALL = ""
"""The activity of a run that has no tool call in progress."""


@dataclass(slots=True)
class Suspicion:
    """The consecutive deaths during which a run was executing, without progress since."""

    deaths: int = 0
    """Deaths outside trials."""
    deaths_in_company: int = 0
    """Deaths in trials with other members."""
    deaths_alone: int = 0
    """Deaths as the only member of a trial, or as the only run of a worker before its trial, and failures of the
    engine."""
    unexplained: int = 0
    """Recent deaths of workers that were not executing this run."""
    activities: frozenset[str] = frozenset()
    """The tools that were running at each of these deaths, or `MODEL_CALL`. Finishing one of them is progress."""
    trial: TrialStarted | None = None
    """The trial in which the run executes."""
    group: TrialStarted | None = None
    """The trial in which the run last died."""

    def count_death(self, death: RunRecovered, activities: frozenset[str]) -> None:
        if death.cause == "engine_failed":
            self.deaths_alone += 1
        elif self.trial is not None:
            self._count_death_in_trial(self.trial)
        elif death.alone and self.is_suspect:  # it did not live until its trial
            self.deaths_alone += 1
        else:
            self.deaths += 1
        self.group, self.trial = self.trial or self.group, None
        self.unexplained = max(0, death.deaths_lately - self.total)
        self.activities = (self.activities & activities) or activities

    def _count_death_in_trial(self, trial: TrialStarted) -> None:
        if trial.members == 1:
            self.deaths_alone += 1
        else:
            self.deaths_in_company += 1

    def finish(self, activity: str) -> None:
        """Clear the suspicion if the run has finished an activity that it died in."""
        if activity in self.activities:
            self.clear()

    def clear(self) -> None:
        self.deaths = self.deaths_in_company = self.deaths_alone = self.unexplained = 0
        self.activities = frozenset()
        self.trial = self.group = None

    @property
    def total(self) -> int:
        return self.deaths + self.deaths_in_company + self.deaths_alone

    @property
    def is_culprit(self) -> bool:
        return self.deaths_alone >= CULPRIT_DEATHS + min(MAX_DOUBT, self.unexplained)

    @property
    def is_suspect(self) -> bool:
        return self.total >= SUSPECT_DEATHS and not self.is_culprit


@dataclass(frozen=True, slots=True)
class Suspect:
    """A run that waits for its trial."""

    run_id: RunId
    deaths_alone: int = 0
    group: TrialStarted | None = None
    was_calling_tool: bool = False
    """A tool call was in progress at every death. A model call rarely kills a process."""


def make_suspect(run_id: RunId, suspicion: Suspicion) -> Suspect:
    was_calling_tool = bool(suspicion.activities) and MODEL_CALL not in suspicion.activities
    return Suspect(run_id, suspicion.deaths_alone, suspicion.group, was_calling_tool)


def choose_members(suspects: Sequence[Suspect], has_passed: bool = False) -> Sequence[Suspect]:
    """Return the members of the next trial: half of the suspects that died together, or the rest of them if a trial
    has passed without a death.

    A run that has died alone comes last, alone: if a worker dies without it, something else kills workers. Of the
    others, those of the smallest group come first. If at most half of them were calling tools, the trial has only
    these."""
    first = min(suspects, key=_rank_group)
    if first.deaths_alone:
        return [first]
    group = [each for each in suspects if each.group == first.group and not each.deaths_alone]
    half = len(group) if has_passed else (len(group) + 1) // 2
    callers = [each for each in group if each.was_calling_tool]
    if 0 < len(callers) <= half:
        return callers
    return [*callers, *(each for each in group if not each.was_calling_tool)][:half]


def _rank_group(suspect: Suspect) -> tuple[int, float]:
    return suspect.deaths_alone, suspect.group.members if suspect.group else inf

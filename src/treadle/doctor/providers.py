"""Checks of providers: which ones respond, which are only configured, and which keys are sent where."""

from collections.abc import Mapping

from treadle.doctor.findings import setting
from treadle.domain.providers import remove_credentials
from treadle.models.probe import Probe, ProbeVerdict
from treadle.models.provider_probes import describe_key
from treadle.models.registry import ModelRegistry
from treadle.operations.system_facts import DoctorFinding, FindingState


def describe_provider(name: str, models: ModelRegistry, probe: Probe | None, *, is_wanted: bool) -> DoctorFinding:
    """Return the finding about a provider. An unreachable provider that nothing uses is not an error."""
    config = models.providers[name]
    assert config is not None
    about, where = f"provider {name}", remove_credentials(config.base_url)
    if (problem := models.explain_key_problem(name)) is not None:
        if models.is_key_configured(name):
            return setting(about, f"{where}: the key cannot be used: {problem}", "Correct the key.", "wrong")
        return setting(about, f"{where}: no key is set", f"To use it, set {models.find_missing_key(name)}.", "note")
    key = describe_key(name, models)
    if probe is None:
        return setting(about, f"{where}: {key}, not tried", "", "set")
    found, advice, state = f"{where} {probe.words}", probe.advice, _STATES[probe.verdict]
    if probe.refused_keys:
        state = "wrong"
    elif probe.verdict == "unreachable" and not is_wanted:
        state, advice = "note", "To use it, start it."
    return DoctorFinding(about, state, found, advice)


_STATES: Mapping[ProbeVerdict, FindingState] = {
    "answers": "ok",
    "unclear": "note",
    "refused": "wrong",
    "failing": "wrong",
    "unreachable": "wrong",
}

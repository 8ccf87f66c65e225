"""Draws the dashboards: `python -m deploy.grafana.pictures`. Needs Debian's prometheus and chromium, node and npm; see README.md here.

A Prometheus scrapes the replicas of load.py while the load runs; then draw.mjs has a browser draw each dashboard with Grafana's own panel
components, from this Prometheus, and puts the pictures into docs/grafana.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import tempfile
import time
from pathlib import Path

from deploy.grafana.pictures.load import fleet
from tests.deploy.test_grafana import prometheus

HERE = Path(__file__).parent


def install() -> None:
    if not (HERE / "node_modules").exists():
        command = ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"]
        subprocess.run(command, cwd=HERE, check=True)


async def drawn(minutes: float, keep: bool) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        async with fleet(folder, minutes * 60) as load:
            targets = {f"compactd-{number}": replica.url for number, replica in enumerate(load.replicas)}
            async with prometheus(folder, targets, every="5s") as watching:
                began = time.time()
                await load.run()
                command = ["node", "draw.mjs", watching.url, str(began), str(time.time())]
                while True:
                    await (await asyncio.create_subprocess_exec(*command, cwd=HERE)).wait()
                    if not keep:
                        return
                    await asyncio.to_thread(input, f"Prometheus is at {watching.url}; Enter draws again: ")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition(":")[0])
    parser.add_argument("--minutes", type=float, default=15, help="how long the load runs")
    parser.add_argument("--keep", action="store_true", help="stay, and draw again at each Enter")
    given = parser.parse_args()
    install()
    asyncio.run(drawn(given.minutes, given.keep))

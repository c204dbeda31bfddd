"""What type checkers say about transactions, tests and Django."""

import pytest
from test_types import HERE, mypy, pyright


@pytest.mark.parametrize("check", [mypy, pyright])
def test_right_transactions_are_found_right(check):
    assert check(HERE / "right_transactions.py") == {}


@pytest.mark.parametrize("check", [mypy, pyright])
def test_every_wrong_transaction_is_found_and_no_other(check):
    file = HERE / "wrong_transactions.py"
    lines = file.read_text().splitlines()
    assert set(check(file)) == {number for number, line in enumerate(lines, 1) if line.endswith("# wrong")}

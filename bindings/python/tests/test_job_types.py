"""What type checkers say about classes of jobs and configurations."""

from test_types import HERE, check

__all__ = ["check"]


def test_right_classes_are_found_right(check):
    assert check(HERE / "right_jobs.py") == {}


def test_every_wrong_use_of_a_class_is_found_and_no_other(check):
    file = HERE / "wrong_jobs.py"
    wrong = {number for number, line in enumerate(file.read_text().splitlines(), 1) if line.endswith("# wrong")}
    assert check(file).keys() == wrong

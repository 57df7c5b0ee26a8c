"""The order of the tests: each worker begins with its share of the slow files."""

from __future__ import annotations

from tests.balance import HERE, balanced, slow_files

FAST = [f"fast_{number}.py" for number in range(9)]


def test_each_worker_begins_with_its_share_of_the_slow_files() -> None:
    files = [*FAST, "a.py", "b.py", "b.py", "c.py"]
    order = [files[index] for index in balanced(files, {"a.py": 5.0, "b.py": 9.0, "c.py": 3.0}, workers=2)]
    first, second = order[:6], order[6:]
    assert first[:2] == ["b.py", "b.py"] and second[:2] == ["a.py", "c.py"]
    assert first[2:] + second[2:] == FAST


def test_no_test_is_lost_or_doubled() -> None:
    files = [*FAST, *["slow.py"] * 20, *FAST]
    for workers in (1, 2, 3, 50):
        assert sorted(balanced(files, {"slow.py": 1.0}, workers)) == list(range(len(files)))


def test_tests_of_a_file_stay_together_in_their_order() -> None:
    files = ["a.py", "b.py", "a.py", "b.py"]
    assert balanced(files, {"b.py": 2.0, "a.py": 1.0}, workers=1) == [1, 3, 0, 2]


def test_every_slow_file_exists() -> None:
    missing = [file for file in slow_files() if not (HERE / file).exists()]
    assert not missing, f"remove them from tests/slow_files.txt: {missing}"

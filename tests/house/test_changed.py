"""`make check` runs the test files that concern what differs."""

from changed import ALWAYS, concerned

TEXTS = {
    "tests/test_solver.py": "from cmdpkit.exact.solver import solve\nfrom oracle import brute_force\n",
    "tests/test_vertex.py": "from cmdpkit.exact.vertex import purify\n",
    "tests/test_walk.py": "from cmdpkit.exact.stationary.parts import longest\n",
}


def run(*paths):
    return concerned(list(paths), TEXTS) - ALWAYS


def test_a_module_concerns_the_tests_that_name_it_and_its_own_examples():
    assert run("src/cmdpkit/exact/vertex.py") == {"src/cmdpkit/exact/vertex.py", "tests/test_vertex.py"}


def test_a_folder_of_a_room_concerns_the_tests_of_its_other_modules():
    assert run("src/cmdpkit/exact/stationary/careful.py") == {
        "src/cmdpkit/exact/stationary/careful.py",
        "tests/test_walk.py",
    }


def test_tests_pages_and_shared_parts_concern_themselves_or_their_users():
    assert run("tests/test_vertex.py", "docs/guide/solve.md") == {"tests/test_vertex.py", "docs/guide/solve.md"}
    assert run("tests/oracle.py") == {"tests/test_solver.py"}
    assert run("Makefile", "bench/solver.py") == set()

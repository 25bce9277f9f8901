"""A result belongs to what was asked and to the code that made it; only the same of both is put together."""

import dataclasses
import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.experiments.execute import bench
from cmdpkit.learners.registry import resolve
from cmdpkit.records import code, store
from cmdpkit.records.record import Run
from cmdpkit.results.groups import curve, groups
from cmdpkit.results.study import Study, load_settings, model_of, save_order
from records import make_record

OLD = Path(__file__).parents[1] / "data" / "records-0.2"  # made by version 0.2

# -- what was asked ----------------------------------------------------------------------------------------------------

CHANGES = {
    "env": "paper/grid",
    "algo": "dual-q",
    "length": 11,
    "seed": 1,
    "preset": "theory",
    "params": {"eta": 1.0},
    "fingerprint": "b",
    "bounds": {"utility": 1.0},
    "noise": "bernoulli",
    "baseline": "c",
    "code": "d",
    "readings": (7,),
    "anytime": True,
    "unit": "step",
}


def test_every_field_of_a_run_is_a_part_of_its_address():
    run = Run("paper/synthetic", "triple-q", 10, 0, "practical")
    assert set(CHANGES) == {field.name for field in dataclasses.fields(Run)}
    keys = {dataclasses.replace(run, **{name: value}).key for name, value in CHANGES.items()}
    assert len(keys | {run.key}) == len(CHANGES) + 1


def test_learn_keeps_bounds_noise_and_baseline_apart_from_names_and_parameters():
    safe = ck.solve(ck.load("paper/lower-bound").with_bounds(utility=1.5)).policy
    run = ck.learn("paper/lower-bound", "dope", episodes=3, bounds={"utility": 1}, baseline=safe, noise="bernoulli").run
    assert (run.env, run.params, run.bounds, run.noise) == ("paper/lower-bound", {}, {"utility": 1.0}, "bernoulli")
    assert len(run.baseline) == 12 and run.problem == "paper/lower-bound with utility = 1"
    assert ck.learn("paper/lower-bound", "dope", episodes=3).run.baseline == ""


# -- the code ----------------------------------------------------------------------------------------------------------

LEARNER = """
from parts_of_it import twice
class Mine:
    'Doc.'
    def f(self):
        return twice(1)
"""
PARTS = "import math\ndef twice(x):\n    return 2 * x\n"


def imported(folder, files, module):
    """A module of a folder with these files, imported as if for the first time."""
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    before = set(sys.modules)
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return importlib.import_module(module)
    finally:
        sys.path.remove(str(folder))
        for name in set(sys.modules) - before - {module}:
            if str(folder) in str(getattr(sys.modules[name], "__file__", "")):
                del sys.modules[name]


def digest(folder, files, module="mine_alone"):
    """The digest of the class Mine in a module."""
    kind = imported(folder, files, module).Mine
    try:
        return code.code_digest(kind)
    finally:
        del sys.modules[module]


def test_an_edit_of_the_class_or_of_what_it_imports_is_other_code_and_an_edit_of_words_is_not(tmp_path):
    files = {"mine_alone.py": LEARNER, "parts_of_it.py": PARTS, "stranger.py": "x = 1\n"}
    first = digest(tmp_path / "a", files)
    same = {
        "place": files,
        "words": files
        | {"mine_alone.py": "# Mine\n" + LEARNER.replace("Doc.", "Other words.").replace("(1)", "( 1 )")},
        "stranger": files | {"stranger.py": "x = 2\n"},
    }
    other = {
        "class": files | {"mine_alone.py": LEARNER.replace("twice(1)", "twice(2)")},
        "import": files | {"parts_of_it.py": PARTS.replace("2 * x", "x + x")},
        "default": files | {"parts_of_it.py": PARTS.replace("def twice(x)", "def twice(x=0)")},
    }
    assert {name: digest(tmp_path / name, some) == first for name, some in (same | other).items()} == {
        **dict.fromkeys(same, True),
        **dict.fromkeys(other, False),
    }


def test_modules_of_the_same_package_count_however_they_are_imported(tmp_path):
    base = {
        "pack/__init__.py": "",
        "pack/deep/__init__.py": "",
        "pack/deep/mine.py": "from . import beside\nfrom ..above import g\nimport pack.whole\nclass Mine: pass\n",
        "pack/deep/beside.py": "def f():\n    from pack import late\n",
        "pack/above.py": "g = 1\n",
        "pack/whole.py": "",
        "pack/late.py": "",
        "pack/unused.py": "",
        "outside.py": "",
    }
    first = digest(tmp_path / "first", base, "pack.deep.mine")
    changed = {
        name: digest(tmp_path / f"x{i}", base | {name: text + "\nadded = 1\n"}, "pack.deep.mine") != first
        for i, (name, text) in enumerate(base.items())
    }
    not_counted = {"pack/unused.py", "outside.py"}
    assert changed == {name: name not in not_counted for name in base}


def test_the_code_of_ours_is_its_own_modules_and_what_it_shares_and_no_other_algorithm(monkeypatch):
    meaning, root = code._meaning, Path(ck.__file__).resolve().parent
    kind = resolve("triple-q")
    first = code.code_digest.__wrapped__(kind)

    def edited(name):
        monkeypatch.setattr(code, "_meaning", lambda path: "edited" if path == root / name else meaning(path))
        return code.code_digest.__wrapped__(kind) != first

    own = [f"learners/triple_q/{path.name}" for path in (root / "learners" / "triple_q").glob("*.py")]
    reached = ["simulate/random.py", "simulate/simulator.py", "model/cmdp.py", "model/transitions.py"]
    assert len(own) > 1 and all(edited(name) for name in [*own, *reached])
    assert not any(edited(name) for name in ("learners/opdop.py", "results/study.py", "records/code.py", "nothing.py"))
    kind = resolve("cl-pri")  # it plans with the Bellman backups and the evaluation of the room `operators`
    first = code.code_digest.__wrapped__(kind)
    assert all(edited(name) for name in ("operators/policies.py", "model/policy.py", "exact/columns.py"))


def test_every_module_that_a_learner_loads_from_the_rooms_before_the_records_is_a_part_of_its_code():
    """What Python really imports when it imports a learner, in a process of its own, is the oracle."""
    script = (
        "import sys, cmdpkit.learners.{name}; "
        "print(*(n for n, m in sys.modules.items() if n.startswith('cmdpkit.') and getattr(m, '__file__', None)))"
    )
    for name in ("cl_pri", "opt_cmdp", "ucrl_cmdp"):
        words = [sys.executable, "-c", script.format(name=name)]
        loaded = subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()
        expected = {x for x in loaded if x.split(".")[1] in code.ROOMS}
        found = {}
        groups = [code._ModuleGroup(Path(ck.__file__).resolve().parents[1], code.COUNTED_ROOMS)]
        code._collect(f"cmdpkit.learners.{name}", groups, found)
        assert len(expected) > 40 and expected <= set(found)


def test_a_class_that_is_in_no_file_has_the_code_that_python_made_of_it():
    def made(text):
        scope = {"__name__": "somewhere"}
        exec(text, scope)
        return code.code_digest(scope["Mine"])

    one = made("class Mine:\n    def f(self):\n        return [1 for _ in 'ab']")
    assert one == made("class Mine:\n\n    def f(self):  # moved\n        return [1 for _ in 'ab']")
    assert one != made("class Mine:\n    def f(self):\n        return [2 for _ in 'ab']")


# -- the commit --------------------------------------------------------------------------------------------------------


def test_a_record_names_the_commit_of_its_learner_and_whether_it_was_clean(tmp_path, monkeypatch):
    def git(*words):
        who = ("-c", "user.name=x", "-c", "user.email=x@example.org")
        done = subprocess.run(["git", *who, *words], cwd=tmp_path, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    look = code._checkout.__wrapped__
    mine, other = tmp_path / "mine.py", tmp_path / "other.py"
    mine.write_text("x = 1\n")
    other.write_text("x = 1\n")
    assert look(mine) is None
    git("init", "-q")
    assert look(mine) is None
    git("add", "mine.py")
    git("commit", "-qm", "first")
    assert look(mine) == code.Checkout(git("rev-parse", "HEAD"), True)
    assert look(other) is None, "a file that is not under version control belongs to no commit"
    mine.write_text("x = 2\n")
    assert look(mine) == code.Checkout(git("rev-parse", "HEAD"), False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert look(mine) is None


# -- what is never pooled ----------------------------------------------------------------------------------------------


def coded(record, digest, finished=""):
    return dataclasses.replace(record, run=dataclasses.replace(record.run, code=digest), finished=finished)


def test_runs_of_different_code_are_groups_of_their_own_and_it_is_said():
    records = [make_record("paper/grid", "triple-q", seed) for seed in range(2)]
    present = code.code_digest(resolve("triple-q"))
    ended = {present: "2026-11-19T08:00:00Z", "3f2a91": "2026-11-18T09:12:40Z", "3f2a07": "", "": ""}
    study = Study(tuple(coded(r, digest, finished) for digest, finished in ended.items() for r in records))
    labels = [group.label for group in study.groups()]
    before = ["triple-q (before, 2026-11-18 09:12)", "triple-q (code 3f2a07)", "triple-q (code unknown)"]
    assert labels == ["triple-q (newest, 2026-11-19 08:00)", *before]
    assert [(row["code"], row["seeds"]) for row in study.table()] == [
        *((x, 2) for x in (present, "3f2a91", "3f2a07")),
        ("unknown", 2),
    ]
    told = " ".join(study.remarks())
    assert "was run with different code" in told and "2 runs do not say which code was used" in told
    alone = Study(tuple(coded(r, "3f2a91") for r in records))
    assert [group.label for group in alone.groups()] == ["triple-q"] and alone.remarks() == ()


def test_labels_and_choices_stay_what_was_asked_for_after_an_edit():
    with_eta = [make_record("paper/grid", "triple-q", 0, params={"eta": eta}) for eta in (2.0, 4.0)]
    present = code.code_digest(resolve("triple-q"))
    now, earlier = (
        [coded(r, x, d) for r in with_eta] for x, d in ((present, "2026-11-19T08"), ("3f2a", "2026-11-18T08"))
    )
    labels = {"triple-q (eta=2.0)": "careful"}
    assert [g.label for g in Study(tuple(earlier)).with_labels(labels).groups()] == ["careful", "triple-q (eta=4.0)"]
    both = Study((*earlier, *now)).with_labels(labels)
    assert [g.label for g in both.groups()] == [
        *("careful (before, 2026-11-18 08)", "triple-q (eta=4.0, before, 2026-11-18 08)"),
        *("careful (newest, 2026-11-19 08)", "triple-q (eta=4.0, newest, 2026-11-19 08)"),
    ]
    assert [r.run.code for r in both.only("careful").records] == ["3f2a", present]
    assert [r.run.code for r in both.only("careful (newest, 2026-11-19 08)").records] == [present]
    with pytest.raises(ValueError, match=r"no run is of algorithm 'daring'; there are careful, careful \(before, 2026"):
        both.only("daring")


def test_seeds_that_make_no_difference_are_one_sample_without_an_interval():
    walk = ck.CMDP([[[0.0, 1.0]] * 2, [[1.0, 0.0]] * 2], [[0, 1], [2, 0.5]], horizon=3)
    fixed = Study(tuple(ck.learn(walk, "opt-cmdp", episodes=30, seed=seed) for seed in range(3)))
    (group,) = fixed.groups()
    (row,) = fixed.table()
    assert group.deterministic and len(group.seeds) == 3 and len(group.samples) == 1
    assert (row["seeds"], row["samples"], row["regret_low"], row["policy_gap_high"]) == (3, 1, None, None)
    assert row["regret"] == fixed.records[0].regret and curve(group, "regret").low is None
    assert "one run (deterministic)" in fixed.remarks()[0]
    drawn = [ck.learn("paper/synthetic", "triple-q", episodes=30, seed=seed) for seed in (0, 1)]
    (random,) = groups(drawn)
    assert not random.deterministic and len(random.samples) == 2 and Study(tuple(drawn)).table()[0]["samples"] == 2
    once = Study(fixed.records[:1]).groups()[0]
    assert not once.deterministic, "a single seed shows nothing"


# -- records of version 0.2 --------------------------------------------------------------------------------------------


def test_the_numbers_of_a_record_of_version_0_2_are_those_that_it_printed():
    """The regrets were printed by version 0.2 when it made the records, and today's code comes to the same.

    To the bit in what was played. Regrets also contain the optimum, whose last bit depends on the linear algebra of the
    processor: 40 times as much may come of it.
    """
    study = Study.load(OLD)
    assert [(r.run.algo, r.run.seed) for r in study.records] == [("triple-q", 0), ("triple-q", 1), ("cl-pri", 0)]
    assert [r.regret for r in study.records] == [11.547721488640157, 8.02901811736232, 216.1326628866952]
    (failure,) = study.failures
    assert (failure.run.env, failure.run.bounds, failure.reason) == ("paper/grid", {"cost": 0.3}, "it was too dark")
    today = ck.learn("paper/synthetic", "triple-q", episodes=40, seed=0, bounds={"utility": 1.9}, noise="bernoulli")
    old = study.records[0]
    assert list(old.curves) == list(today.curves) and old.policy == today.policy
    for name, then in old.curves.items():
        np.testing.assert_allclose(
            today.curves[name], then, rtol=0, atol=1e-13 if "regret" in name else 0, err_msg=name
        )
    assert model_of(old.run) == ck.load("paper/synthetic").with_bounds(utility=1.9)


def test_an_old_record_is_kept_and_stands_for_no_run_of_changed_code(tmp_path):
    shutil.copytree(OLD, tmp_path / "runs")
    before = {path.name: path.read_bytes() for path in (tmp_path / "runs").iterdir()}
    asked = [{"model": "paper/synthetic", "bounds": {"utility": 1.9}}], ["triple-q"]
    study = bench(*asked, episodes=40, seeds=2, noise="bernoulli", out=tmp_path / "runs", executor="serial")
    assert len(study) == 2
    assert before.items() <= {path.name: path.read_bytes() for path in (tmp_path / "runs").glob("*.*")}.items()
    everything = Study.load(tmp_path / "runs")
    labels = [g.label for g in everything.groups() if g.run.algo == "triple-q"]
    assert labels[0].startswith("triple-q (newest, ") and labels[1].startswith("triple-q (code "), labels
    assert "was run with different code" in everything.to_html(tmp_path / "report.html").read_text()


def test_an_old_record_that_cannot_be_read_says_what_to_do(tmp_path, monkeypatch):
    shutil.copytree(OLD, tmp_path / "runs")
    path = next((tmp_path / "runs").glob("0f4e*.json"))
    good = path.read_text()
    path.write_text(good.replace('"seed": 0', '"seed": 5'))
    with pytest.raises(ValueError, match=r"0f4e.*\.json belongs to another run"):
        store.load_records(tmp_path)
    path.write_text(good.replace('"schema": 2', '"schema": 1'))
    with pytest.raises(ValueError, match=r"was written by version 0\.1, whose records cmdpkit 0\.2 was the last"):
        store.load_records(tmp_path)
    path.write_text(good)
    path.with_suffix(".parquet").unlink()
    with pytest.raises(ValueError, match="are not a complete record"):
        store.load_records(tmp_path)
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"was written by cmdpkit 0\.2 .* pip install 'cmdpkit\[frames\]'"):
        store.load_records(tmp_path)


def test_code_that_a_record_names_is_not_run_to_look_at_it(tmp_path, monkeypatch):
    (tmp_path / "evil_places.py").write_text("import pathlib\npathlib.Path('imported').touch()\nmake = open\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    record = make_record("paper/grid", "triple-q", 0)
    for env in ("evil_places:make", "evil_places:make:file=called,mode=w"):
        named = dataclasses.replace(record, run=dataclasses.replace(record.run, env=env))
        store.save_record(named, tmp_path / "runs")
        assert model_of(named.run) is None
    Study.load(tmp_path / "runs").to_html(tmp_path / "report.html")
    assert not (tmp_path / "imported").exists() and not (tmp_path / "called").exists()


# -- a folder is a whole study -----------------------------------------------------------------------------------------


def test_a_study_loaded_from_its_folder_has_models_and_title(tmp_path):
    cmdp = ck.CMDP([[[0.5, 0.5]] * 2, [[1.0, 0.0]] * 2], [[0, 1], [2, 0.5]], horizon=3)
    bench({"mine": cmdp}, ["triple-q"], episodes=50, seeds=2, out=tmp_path, executor="serial")
    assert Study.load(tmp_path).title == tmp_path.name
    save_order(tmp_path, [record.run for record in Study.load(tmp_path).records], "A <b>title")
    study = Study.load(tmp_path)
    assert study.title == "A <b>title"
    assert model_of(study.records[0].run, study.models) == cmdp
    page = study.to_html(tmp_path / "report.html").read_text()
    assert "<h1>A &lt;b&gt;title" in page and "price" in page
    path = tmp_path / "study.json"
    path.write_text(path.read_text()[:-9])
    with pytest.raises(ValueError, match=r"study\.json is damaged"):
        load_settings(tmp_path)


def test_the_manifest_says_which_code_made_it_and_from_which_commit(tmp_path):
    record = ck.learn("paper/synthetic", "triple-q", episodes=5, bounds={"utility": 1.9})
    document = json.loads(bytes(np.load(store.save_record(record, tmp_path))["header"]))
    assert document["run"]["code"] == code.code_digest(resolve("triple-q")) and document["schema"] == 3
    assert document["run"]["bounds"] == {"utility": 1.9}
    again = store.load_record(tmp_path, record.run.key)
    assert again.checkout == record.checkout and again.run == record.run
    inside = shutil.which("git") and subprocess.run(
        ["git", "ls-files", "--error-unmatch", ck.__file__], cwd=os.path.dirname(ck.__file__), capture_output=True
    )
    assert (record.checkout is not None) == bool(inside and inside.returncode == 0)

"""Intervals and slopes against SciPy and against curves whose answer is known."""

import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from cmdpkit import CmdpkitError
from cmdpkit.records import store
from cmdpkit.results.groups import curve, groups, seed_mean, slope
from cmdpkit.results.study import Study
from records import make_record, study, two_bounds


@pytest.fixture(scope="module")
def records():
    return study("two", 5, two_bounds())


def shaped(record, **curves):
    """The record with other curves."""
    return replace(record, curves={name: np.asarray(x, dtype=float) for name, x in curves.items()})


# -- intervals ---------------------------------------------------------------------------------------------------------


def test_the_interval_is_scipys_and_absent_with_one_seed():
    values = np.random.default_rng(0).normal(size=(7, 4))
    found = seed_mean(values, level=0.9)
    low, high = stats.t.interval(0.9, 6, values.mean(axis=0), stats.sem(values, axis=0))
    np.testing.assert_allclose([found.low, found.high], [low, high], rtol=1e-10)
    alone = seed_mean(values[:1])
    assert alone.low is None and alone.high is None and alone.n == 1
    np.testing.assert_array_equal(alone.mean, values[0])


def test_the_t_interval_covers_as_often_as_it_says():
    """2,000 intervals from 5 normal numbers: the share that covers is within 4 standard errors of 95 % (p < 1e-4)."""
    values = np.random.default_rng(1).normal(3.0, 2.0, size=(5, 2000))
    found = seed_mean(values)
    share = np.mean((found.low <= 3) & (found.high >= 3))
    assert abs(share - 0.95) < 4 * np.sqrt(0.95 * 0.05 / 2000)


def test_a_level_is_a_probability():
    with pytest.raises(ValueError, match=r"level is 1\.5"):
        seed_mean(np.zeros(3), level=1.5)


# -- groups and curves -------------------------------------------------------------------------------------------------


def test_groups_differ_in_the_seed_alone_and_labels_say_what_tells_them_apart(records):
    cmdp = two_bounds()
    more = [
        make_record("two", "pri", 0, cmdp, preset="printed"),
        make_record("two", "pri", 1, cmdp, params={"eta": 0.5}),
        make_record("two", "pri", 0, cmdp, episodes=5000),
        make_record("other", "pri", 0, cmdp),
    ]
    found = groups([*reversed(records), *more])
    assert [(g.run.env, g.label, g.seeds) for g in found] == [
        ("two", "opt-cmdp", (0, 1, 2, 3, 4)),
        ("two", "triple-q", (0, 1, 2, 3, 4)),
        ("two", "pri (practical, 1,000,000 episodes)", (0, 1, 2, 3, 4)),
        ("two", "pri (printed)", (0,)),
        ("two", "pri (practical, eta=0.5)", (1,)),
        ("two", "pri (practical, 5,000 episodes)", (0,)),
        ("other", "pri", (0,)),
    ]
    with pytest.raises(ValueError, match="pri on two: seed 0 is given twice"):
        groups([records[0], records[0]])


def test_a_curve_is_the_mean_over_seeds_with_its_band(records):
    group = groups(records)[0]
    line = curve(group, "violation", 1)
    raw = np.array([r.curves["violation"][1] for r in records[:5]])
    np.testing.assert_array_equal(line.raw, raw)
    np.testing.assert_allclose(line.mean, raw.mean(axis=0), rtol=1e-14)
    half = stats.t.ppf(0.975, 4) * stats.sem(raw, axis=0)
    np.testing.assert_allclose(line.high - line.mean, half, rtol=1e-9)
    assert curve(groups(records[:1])[0], "regret").low is None
    with pytest.raises(ValueError, match=r"pri on two has no curve 'speed'; there are episode, multiplier"):
        curve(group, "speed")
    for ask in (slope, lambda group, name: records[0].final(name)):
        with pytest.raises(CmdpkitError, match=r"has no curve 'speed'; there are"):
            ask(group, "speed")
    with pytest.raises(ValueError, match="has 2 rows, there is no row 2"):
        curve(group, "violation", 2)


def test_runs_with_different_checkpoints_meet_on_a_common_grid(records):
    a = shaped(records[0], episode=[1, 2, 4, 8], regret=[1, 2, 4, 8])
    b = shaped(records[1], episode=[2, 3, 6], regret=[4, 6, 12])
    line = curve(groups([a, b])[0], "regret")
    assert line.episode.tolist() == [2, 3, 4, 6]  # from where the last begins to where the first ends
    assert line.raw.tolist() == [[2, 3, 4, 6], [4, 6, 8, 12]]


def test_the_slope_of_a_power_is_its_exponent_whatever_the_checkpoints(records):
    k = np.unique(np.concatenate((np.geomspace(1, 1e6, 30), np.linspace(1, 1e6, 200))))
    bent = np.where(k < 1e5, 3 * k**0.9, 3 * 1e5**0.4 * k**0.5)  # only the last part counts
    same = [shaped(r, episode=k, regret=bent * (1 + 0.1 * i)) for i, r in enumerate(records[:3])]
    found = slope(groups(same)[0], "regret")
    assert found.mean == pytest.approx(0.5, abs=1e-6) and found.high - found.low < 1e-6
    assert slope(groups([shaped(records[0], episode=k, regret=-bent)])[0], "regret") is None
    assert slope(groups([shaped(records[0], episode=k[-2:], regret=bent[-2:])])[0], "regret") is None


def test_the_table_has_every_form_and_what_became_of_the_policies(records):
    rows = {row["algo"]: row for row in Study(tuple(records)).table()}
    pri = rows["pri"]
    mine = [r for r in records if r.run.algo == "pri"]
    for name in ("regret", "strong_regret", "realised_regret"):
        assert pri[name] == pytest.approx(np.mean([r.final(name) for r in mine]), rel=1e-12)
        assert pri[f"{name}_low"] < pri[name] < pri[f"{name}_high"]
    assert pri["strong_violation_2"] == pytest.approx(
        np.mean([r.final("strong_violation")[1] for r in mine]), rel=1e-12
    )
    assert pri["policies_within_bounds"] == 5 and abs(pri["policy_gap"]) < 1e-9
    assert rows["triple-q"]["policy_gap"] > 0.01
    assert rows["triple-q"]["policies_within_bounds"] == sum(
        r.policy_utilities[0] <= 0.6 and r.policy_utilities[1] >= 1.0 for r in records if r.run.algo == "triple-q"
    )
    assert 0.4 < pri["slope"] < 0.6 and 0.7 < rows["triple-q"]["slope"] < 0.9
    blind = Study((make_record("two", "pri", 0, two_bounds(), blind=True),)).table()[0]
    assert "regret" not in blind and "violation_1" not in blind and blind["policies_within_bounds"] is None
    assert blind["realised_violation_2_low"] is None and not any(x != x for x in blind.values())


# -- studies -----------------------------------------------------------------------------------------------------------


def test_a_study_is_the_saved_one_and_frames_have_every_checkpoint(records, tmp_path):
    mixed = [*records[:6], make_record("paper/grid", "pri", 0)]
    for record in mixed:
        store.save_record(record, tmp_path)
    loaded = Study.load(tmp_path)
    assert len(loaded) == 7 and loaded.failures == ()
    frame = loaded.to_pandas()
    assert len(frame) == sum(len(r.curves["episode"]) for r in mixed)
    for record in mixed:
        rows = frame[frame["run"] == record.run.key]
        np.testing.assert_array_equal(rows["regret"], record.curves["regret"])
        np.testing.assert_array_equal(rows["violation_1"], record.curves["violation"][0])
    assert frame["violation_2"].isna().sum() == len(mixed[-1].curves["episode"])
    assert set(frame["seed"]) == {0, 1, 2, 3, 4}


def test_a_missing_library_and_an_empty_folder_are_explained(records, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"there is no finished run in"):
        Study.load(tmp_path)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(ValueError, match=r"needs pandas, which is not installed: pip install 'cmdpkit\[frames\]'"):
        Study(tuple(records)).to_pandas()


def test_a_curve_that_would_hide_a_column_of_the_frame_is_refused(records):
    x = np.ones(len(records[0].read_at))
    for name in ("seed", "violation_1"):
        odd = replace(records[0], curves={**records[0].curves, name: x})
        with pytest.raises(ValueError, match=rf"needs the column '{name}', which is taken"):
            Study((odd,)).to_pandas()

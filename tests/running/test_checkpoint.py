"""Saved runs that are damaged, edited or foreign: refused with a sentence, never continued to a wrong result."""

import io
import random
import re
import zipfile

import numpy as np
import pytest

import cmdpkit as ck
from cmdpkit.learners import names_for
from cmdpkit.running import active
from cmdpkit.running.learning import learn
from gym_line import FALLS, lake

ASKED = {"episodes": 400, "seed": 3}


class Stop(Exception):
    pass


def stop_at(k):
    def progress(at):
        if at.done >= k:
            raise Stop

    return progress


def interrupted(path, env="paper/synthetic", algo="triple-q", k=100, **asked):
    with pytest.raises(Stop):
        learn(env, algo, checkpoint=path, progress=stop_at(k), **{**ASKED, **asked})
    with np.load(path) as saved:
        return dict(saved)


def continued(path):
    return learn("paper/synthetic", "triple-q", checkpoint=path, **ASKED)


@pytest.fixture
def saved(tmp_path):
    """The path of a run that was broken off, and its arrays."""
    path = tmp_path / "run.npz"
    return path, interrupted(path)


def resealed(path, arrays):
    """Write edited arrays with a checksum that fits them, as somebody who knows the format would."""
    arrays = {name: x for name, x in arrays.items() if name != "checksum"}
    np.savez(path, **arrays, checksum=np.array(active._checksum(arrays)))


def test_a_run_that_is_ended_by_its_progress_report_is_saved_at_that_very_episode(saved):
    path, arrays = saved
    assert 100 <= arrays["done"] < 400 and arrays["done"] == arrays["world/clock"][0]
    whole, again = learn("paper/synthetic", "triple-q", **ASKED), continued(path)
    assert all(np.array_equal(whole.curves[name], again.curves[name]) for name in whole.curves)
    assert whole.policy == again.policy


def test_any_member_that_is_edited_is_noticed(saved):
    path, arrays = saved
    assert len(arrays) > 15
    for name, x in arrays.items():
        if name in ("format", "key", "checksum"):
            continue
        edited = {**arrays, name: _other(x)}
        np.savez(path, **edited)
        with pytest.raises(ck.CmdpkitError, match="is damaged or was edited"):
            continued(path)
    np.savez(path, **arrays, extra=np.zeros(3))
    with pytest.raises(ck.CmdpkitError, match="is damaged or was edited"):
        continued(path)
    np.savez(path, **arrays)
    continued(path)  # written again as it was, it is a saved run


def _other(x):
    """The same array with one bit changed; a longer one where there is nothing to change."""
    if not x.nbytes:
        return np.append(x, np.zeros(1, x.dtype))
    data = bytearray(x.tobytes())
    data[len(data) // 2] ^= 1
    return np.frombuffer(bytes(data), x.dtype).reshape(x.shape)


def floats_of(arrays):
    return next(name for name, x in arrays.items() if name.startswith("learner/") and x.dtype == float and x.size)


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (lambda a: {"done": np.array(401)}, "it has done 401 episodes of 400"),
        (lambda a: {"done": np.array(-1)}, "it has done -1 episodes of 400"),
        (lambda a: {"done": a["done"] + 1}, "its world has counted|its curves are not read"),
        (lambda a: {"done": np.array(1.5)}, "done is an array float64"),
        (lambda a: {"done": np.array([7])}, r"done is an array int64 \(1,\)"),
        (lambda a: {"seconds": np.array(np.inf)}, "it has taken inf seconds"),
        (lambda a: {"seconds": np.array(-1.0)}, "it has taken -1.0 seconds"),
        (lambda a: {"rng": a["rng"][:3]}, r"rng is an array uint64 \(3,\), expected uint64 \(4,\)"),
        (lambda a: {"rng": a["rng"].astype(np.uint8)}, "rng is an array uint8"),
        (lambda a: {"curve/length": a["curve/length"][:-1]}, "its curves are not read at the episodes expected"),
        (lambda a: {"curve/length": a["curve/length"] + 1}, "its curves are not read at the episodes expected"),
        (lambda a: {"curve/regret": a["curve/regret"][:-1]}, "its curves are not read at the episodes expected"),
        (lambda a: {"curve/violation": a["curve/violation"][:, :0]}, "curve/violation is an array float64"),
        (lambda a: {"world/clock": a["world/clock"] + 1}, "its world has counted"),
        (lambda a: {"world/sums": a["world/sums"][:, :1]}, r"world/sums is an array float64 \(3, 1\), expected"),
        (lambda a: {floats_of(a): a[floats_of(a)].astype(int)}, "holds int64, expected float64"),
        (lambda a: {floats_of(a): a[floats_of(a)][:-1]}, "has shape"),
    ],
)
def test_a_saved_run_that_contradicts_itself_is_refused_even_if_its_checksum_fits(saved, edit, message):
    path, arrays = saved
    resealed(path, {**arrays, **edit(arrays)})
    with pytest.raises(ck.CmdpkitError, match=message) as caught:
        continued(path)
    assert str(path) in str(caught.value) and "delete it" in str(caught.value)


def test_members_that_are_missing_are_noticed(saved):
    path, arrays = saved
    for name in arrays:
        resealed(path, {other: x for other, x in arrays.items() if other not in (name, "checksum")})
        if name == "checksum":
            continue
        with pytest.raises(ck.CmdpkitError, match=re.escape(str(path))):
            continued(path)


def test_foreign_files_are_refused(saved, tmp_path):
    path, _ = saved
    plain = io.BytesIO()
    np.save(plain, np.zeros(3))
    model = io.BytesIO()
    np.savez(model, P=np.zeros((2, 2, 2)))
    objects = io.BytesIO()
    np.savez(objects, format=np.array([{}], dtype=object))
    huge = io.BytesIO()  # declares an array of a petabyte and holds nothing of it
    with zipfile.ZipFile(huge, "w") as archive:
        header = b"{'descr': '<f8', 'fortran_order': False, 'shape': (125000000000000,), }"
        archive.writestr("rng.npy", b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header)
    cases = [plain, model, objects, huge]
    for data in [*(x.getvalue() for x in cases), b"", b"PK", b"text\n", b"\x80\x04N."]:
        path.write_bytes(data)
        with pytest.raises(ck.CmdpkitError, match=re.escape(str(path))):
            continued(path)
    with pytest.raises(ck.CmdpkitError, match="is not a readable saved run"):
        continued(tmp_path)  # a folder


def test_damage_anywhere_is_refused_or_harmless(saved):
    """Bytes of the archive that no array is read from (times, for example) may change; the result may not."""
    path, _ = saved
    data, whole = path.read_bytes(), continued(path)
    path.write_bytes(data)
    chance, refused = random.Random(1), 0
    for _ in range(150):
        hurt = bytearray(data)
        for _ in range(chance.choice((1, 1, 8))):
            hurt[chance.randrange(len(hurt))] = chance.randrange(256)
        path.write_bytes(hurt if chance.random() < 0.8 else hurt[: chance.randrange(len(hurt))])
        try:
            again = continued(path)
        except ck.CmdpkitError:
            refused += 1
        else:
            assert np.array_equal(whole.curves["realised_regret"], again.curves["realised_regret"])
            assert whole.policy == again.policy
    assert refused > 100


@pytest.mark.parametrize("algo", names_for("horizon"))
def test_every_learner_continues_from_its_own_checkpoint(algo, tmp_path):
    """Checks that are too strict for what a learner may save would show here."""
    path, asked = tmp_path / "run.npz", {"episodes": 150, "seed": 3}
    interrupted(path, algo=algo, k=60, **asked)
    whole, again = (learn("paper/synthetic", algo, checkpoint=p, **asked) for p in (None, path))
    assert all(np.array_equal(whole.curves[name], again.curves[name]) for name in whole.curves)


def test_saved_episodes_of_an_environment_must_fit_it(tmp_path):
    path = tmp_path / "run.npz"
    asked = {"constraints": FALLS, "episodes": 90, "seed": 3}
    arrays = interrupted(path, lake(), k=20, **asked)
    for name, value, message in (
        ("world/lengths", arrays["world/lengths"] + 100, "other lengths than"),
        ("world/states", arrays["world/states"] + 1, "in another state than before"),
    ):
        resealed(path, {**arrays, name: value})
        with pytest.raises(ck.CmdpkitError, match=message):
            learn(lake(), "triple-q", checkpoint=path, **asked)

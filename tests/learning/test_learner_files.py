"""Learner files that somebody changed: refused when they are loaded, or harmless."""

import io
import tracemalloc
import zipfile
from dataclasses import replace

import numpy as np
import pytest
from drawn import examples
from hypothesis import given
from hypothesis import strategies as st

import tacit
from tacit.core.arrays import leaves, rebuild_state
from tacit.core.dispatch import list_parts
from tacit.core.state_ranges import read_ranges
from tacit.errors import SnapshotError
from tacit.learning.learner import make_snapshot, restore_learner
from tacit.learning.snapshot import from_bytes, iter_pieces
from tacit.policies.base import registry

pytestmark = pytest.mark.interpreted  # an index out of bounds is an error then, and damage otherwise

ARMS = 3
KINDS = list_parts(registry, "policies")
POLICIES = {kind.__name__: kind.example(ARMS, 2) for kind in KINDS} | {
    f"{kind.__name__} per key": replace(kind.example(ARMS, 2), per_key=True)
    for kind in KINDS
    if "per_key" in kind.__dataclass_fields__
}
BAD = [np.nan, np.inf, -np.inf, 1e308, -1e308, 2.0**62, 1e6, -1e6, 100, 7, 4, 2, 1, 0.5, 0, -1, -2]


def play(learner, rounds, seed):
    """Choose and learn for some rounds, whatever the policy reads and shows."""
    policy, rng = learner.policy, np.random.default_rng(seed)
    for i in range(rounds):
        features = {"context": rng.random(policy.context_dim)} if policy.context_dim else {}
        for name, dim in zip(("relevance", "examination"), policy.feature_dims, strict=True):
            if dim:
                features[name] = rng.random((ARMS, dim))
        decision = learner.choose("ab"[i % 2], **features)
        clicks = (rng.random(policy.feedback_width) < 0.5).astype(float)
        if policy.feedback_width > 1:
            clicks[decision.slots < 0] = 0.0
        learner.learn(decision, clicks if policy.feedback_width > 1 else clicks[0])


@pytest.fixture(scope="module")
def snapshots():
    """Return the snapshot of a learner of a policy that has played, made once."""
    made = {}

    def snapshot(name):
        if name not in made:
            learner = tacit.Learner(POLICIES[name], seed=1)
            play(learner, 20, seed=1)
            made[name] = make_snapshot(learner).copy()
        return made[name]

    return snapshot


def content_of(snapshot):
    return b"".join(iter_pieces(snapshot))


def with_value(array, index, value):
    """Return a copy of an array that holds a value at an index, as far as its type can hold it."""
    copy = array.copy()
    if copy.dtype.kind in "iu":
        limits = np.iinfo(copy.dtype)
        value = 0 if np.isnan(value) else int(min(max(value, limits.min), limits.max))
    with np.errstate(all="ignore"):
        copy.reshape(-1)[index] = value
    return copy


def is_damage(error):
    """Whether compiled code would have written or read beyond an array."""
    return isinstance(error, IndexError) or "convert float" in str(error)


@pytest.mark.parametrize("name", POLICIES)
@examples(20)
@given(data=st.data())
def test_a_learner_with_a_changed_number_is_refused_or_harmless(snapshots, name, data):
    snapshot = snapshots(name)
    arrays = dict(leaves(snapshot.state))
    field = data.draw(st.sampled_from(sorted(field for field, array in arrays.items() if array.size)))
    places = st.one_of(st.integers(0, arrays[field].size - 1), st.just(slice(None)))
    changed = with_value(arrays[field], data.draw(places), data.draw(st.sampled_from(BAD)))
    state = rebuild_state(snapshot.state, iter((arrays | {field: changed}).values()))
    refusal = damage = None
    try:
        play(from_bytes(content_of(snapshot._replace(state=state)), "x", restore_learner), 4, seed=2)
    except SnapshotError as error:
        refusal = str(error)
    except Exception as error:
        damage = str(error) if is_damage(error) else None
    assert damage is None
    assert refusal is None or field in refusal


@pytest.mark.parametrize("name", POLICIES)
def test_every_whole_number_of_a_state_declares_its_range(name):
    def undeclared(state, prefix=""):
        for field, value in zip(state._fields, state, strict=True):
            if isinstance(value, tuple):
                yield from undeclared(value, f"{prefix}{field}.")
            elif value.dtype.kind in "iu" and field not in read_ranges(type(state)):
                yield prefix + field

    assert list(undeclared(POLICIES[name].init(2))) == []


@pytest.mark.parametrize("name", POLICIES)
def test_a_learner_that_was_saved_is_loaded(snapshots, name):
    content = content_of(snapshots(name))
    assert content_of(make_snapshot(from_bytes(content, "x", restore_learner))) == content


@pytest.mark.parametrize("value", [np.nan, 1e308, -1e6])
def test_the_error_names_the_array_and_its_value(snapshots, value):
    snapshot = snapshots("ContextMixture")
    tally = snapshot.state.tally._replace(rounds=np.array([value]))
    content = content_of(snapshot._replace(state=snapshot.state._replace(tally=tally)))
    with pytest.raises(SnapshotError, match=r"x: damaged: tally\.rounds holds .*, not in \[0, 9\.00"):
        from_bytes(content, "x", restore_learner)


def repacked(snapshot, changes=None, **options):
    """Return a learner's file with some members changed, in an archive that is written otherwise."""
    packed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content_of(snapshot))) as old,
        zipfile.ZipFile(packed, "w", **options) as new,
    ):
        for name in old.namelist():
            new.writestr(name, (changes or {}).get(name) or old.read(name))
    return packed.getvalue()


def peak_of_refusal(content, match):
    """Return how many bytes are taken until a learner is refused."""
    tracemalloc.start()
    try:
        with pytest.raises(SnapshotError, match=match):
            from_bytes(content, "x", restore_learner)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_compressed_learner_is_refused_before_it_inflates():
    learner = tacit.Learner(tacit.UCB1(10), seed=1)
    learner.choose_many([f"key {i}" for i in range(20_000)])
    content = repacked(make_snapshot(learner), compression=zipfile.ZIP_DEFLATED)
    assert peak_of_refusal(content, "x: damaged: a part of it is compressed") < 2 * len(content)


def test_an_array_that_says_it_is_huge_is_refused_before_there_is_room_for_it(snapshots):
    header = io.BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": (2**26, 2)}
    np.lib.format.write_array_header_1_0(header, described)
    content = repacked(snapshots("UCB1"), {"plays.npy": header.getvalue()})
    assert peak_of_refusal(content, r"plays is float64\(67108864, 2\), not float64\(2, 3\)") < 10**6

"""What data-parallel training means, on real processes: values that can be worked out by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ddp_support import ranks_that_train, torch_or_skip

pytestmark = pytest.mark.gloo


@pytest.fixture(scope="module", params=[2, 4])
def ranks(request):
    torch_or_skip("gloo")
    with ranks_that_train(request.param) as started:
        yield started


@pytest.fixture(scope="module")
def rows():
    generator = np.random.default_rng(7)
    return generator.normal(size=(1000, 3)), generator.normal(size=1000)


def gradients(x, y):
    """Of each row's squared error (w x - y)² at w = 0."""
    return -2 * x * y[:, None]


def trained(ranks, rows, sizes, loss):
    x, y = (array[: sum(sizes)].tolist() for array in rows)
    got = ranks.train("regression_gradient", x=x, y=y, sizes=sizes, loss=loss)
    assert all(gradient == got[0] for gradient in got)
    return np.array(got[0])


def test_averaged_gradients_equal_one_process_on_the_whole_batch(ranks, rows):
    sizes = [80 // ranks.n] * ranks.n
    whole = gradients(*rows)[:80]
    mean = trained(ranks, rows, sizes, "mean")
    np.testing.assert_allclose(mean, whole.mean(axis=0), rtol=1e-12)
    # The stray factor: a summed loss comes out divided by the number of ranks.
    summed = trained(ranks, rows, sizes, "sum")
    np.testing.assert_allclose(summed * ranks.n, whole.sum(axis=0), rtol=1e-12)


def test_unequal_batches_weigh_ranks_not_samples(ranks, rows):
    """300, 300, 200, 200: a sample of a small rank counts 1/800, of a large one 1/1200."""
    sizes = [300, 300, 200, 200] if ranks.n == 4 else [600, 400]
    each = gradients(*rows)
    weights = np.repeat([1 / (ranks.n * size) for size in sizes], sizes)
    biased = trained(ranks, rows, sizes, "mean")
    np.testing.assert_allclose(biased, (weights[:, None] * each).sum(axis=0), rtol=1e-12)
    assert not np.allclose(biased, each.mean(axis=0), rtol=1e-3)
    if ranks.n == 4:
        assert weights[-1] * 1000 == pytest.approx(1.25)
        assert weights[0] * 1000 == pytest.approx(1 / 1.2)
    fair = trained(ranks, rows, sizes, "weighted")
    np.testing.assert_allclose(fair, each.mean(axis=0), rtol=1e-12)


def test_accumulation_without_synchronising_ends_where_the_synchronised_one_does(ranks):
    """Micro-batches 1, 3 and 3, 4: 5.5 on both ranks; forget the last one, and 4.0 and 7.0."""
    x = [[1.0, 3.0], [3.0, 4.0], [2.0, 5.0], [0.0, 1.0]][: ranks.n]
    own = [sum(values) for values in x]
    mean = sum(own) / ranks.n
    assert ranks.n > 2 or (own, mean) == ([4.0, 7.0], 5.5)
    for placement, reductions in (("all", 2), ("last", 1), ("forward outside", 2)):
        got = ranks.train("accumulated", x=x, placement=placement)
        assert got == [[mean, reductions]] * ranks.n, placement
    assert ranks.train("accumulated", x=x, placement="none") == [[value, 0] for value in own]


def test_an_unused_parameter_stops_the_second_iteration(ranks):
    for said in ranks.train("unused_parameter", find=False):
        assert said.startswith(
            "Expected to have finished reduction in the prior iteration before starting a new one."
        )
        assert "Parameter indices which did not receive grad for rank" in said
        assert said.rstrip().splitlines()[0].count("find_unused_parameters=True") == 1
    assert ranks.train("unused_parameter", find=True) == [[False, True]] * ranks.n


@pytest.mark.filterwarnings("ignore")
def test_join_divides_by_the_ranks_it_had_or_by_those_left(ranks):
    x = [[4.0, 6.0, 8.0], [2.0], [1.0], [1.0]][: ranks.n]
    first = sum(values[0] for values in x) / ranks.n
    by_initial = ranks.train("joined", x=x, by_initial=True)
    assert by_initial == [[first, 6 / ranks.n, 8 / ranks.n], *[[first]] * (ranks.n - 1)]
    by_those_left = ranks.train("joined", x=x, by_initial=False)
    assert by_those_left == [[first, 6.0, 8.0], *[[first]] * (ranks.n - 1)]


def test_batch_norm_starts_each_pass_from_rank_0s_mean_or_drifts(ranks):
    """The running mean moves a tenth of the way to the mean of the local batch."""
    values = [[10.0 * (r + 1), 20.0 * (r + 1)] for r in range(ranks.n)]
    zeroth = 0.1 * values[0][0]
    for rank, (first, second) in enumerate(ranks.train("batch_norm", values=values, sync=True)):
        assert first == pytest.approx([0.0, 0.1 * values[rank][0]])
        assert second == pytest.approx([zeroth, 0.9 * zeroth + 0.1 * values[rank][1]])
    for rank, (first, second) in enumerate(ranks.train("batch_norm", values=values, sync=False)):
        own = 0.1 * values[rank][0]
        assert first == pytest.approx([0.0, own])
        assert second == pytest.approx([own, 0.9 * own + 0.1 * values[rank][1]])


def test_seeds_may_differ_at_the_start_and_later_changes_stay_apart(ranks):
    got = ranks.train("seeds")
    before, after, later = zip(*got, strict=True)
    assert len(set(before)) == ranks.n
    assert set(after) == {before[0]}
    assert later == tuple(pytest.approx(before[0] + (rank == 1)) for rank in range(ranks.n))
    for said in ranks.train("other_model"):
        assert "appears not to match" in said or "inconsistent" in said

"""Learning with stale gradients: the order is the run's, and the limits are those of the theory."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simcore import uniform
from simcore.training.asynchronous import run_asynchronous
from simcore.training.learning import LeastSquares, Softmax, stability_limit, train

PROBLEMS = {"least squares": LeastSquares(seed=3), "softmax": Softmax(seed=3)}


@cache
def equal_workers(n: int, updates: int, bound: int | None = None):
    """Every gradient is n - 1 updates old, or none is."""
    return run_asynchronous(uniform(n + 1, 1e9), 1.0, 4, 4, updates, bound, servers=1)


# -- the problems are what they say --------------------------------------------------------------


@pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
def test_gradients_are_the_derivative_of_the_loss(problem):
    """The mean of the mini-batches that together are all samples, against differences."""
    problem = type(problem)(seed=4, batch=1, samples=64)
    problem.batches.rows = np.arange(64)[:, None]
    draw = np.random.default_rng(0)
    x, way = (draw.normal(size=problem.start.shape) for _ in range(2))
    gradient = np.mean([problem.gradient(x, batch) for batch in range(64)], axis=0)
    h = 1e-6
    slope = (problem.loss(x + h * way) - problem.loss(x - h * way)) / (2 * h)
    assert float((gradient * way).sum()) == pytest.approx(slope, rel=1e-6)


def test_least_squares_has_the_optimum_and_the_curvatures_that_it_names():
    problem = LeastSquares(seed=5, curvatures=np.array([1.0, 0.5, 0.1]))
    assert np.linalg.eigvalsh(problem.hessian) == pytest.approx([0.1, 0.5, 1.0])
    found, *_ = np.linalg.lstsq(problem.features, problem.targets, rcond=None)
    assert problem.optimum == pytest.approx(found)
    assert problem.loss(problem.start) == pytest.approx(1.0)
    away = problem.features @ problem.start - problem.targets
    best = problem.features @ problem.optimum - problem.targets
    above = (away @ away - best @ best) / (2 * len(away))
    assert problem.loss(problem.start) == pytest.approx(above)


def test_the_softmaxs_curvature_at_the_start_is_1():
    problem = Softmax(seed=6)
    draw = np.random.default_rng(1)
    x = draw.normal(size=problem.start.shape)
    for _ in range(300):  # power iteration with the Hessian, by differences
        x /= np.linalg.norm(x)
        rows = np.arange(len(problem.labels))
        problem.batches.rows = rows[None]
        x = (problem.gradient(1e-5 * x, 0) - problem.gradient(-1e-5 * x, 0)) / 2e-5
    # Of the classes' Hessian (I - 11'/C)/C the largest eigenvalue is 1/C, of the features' C.
    assert np.linalg.norm(x) == pytest.approx(1.0, rel=1e-3)


# -- the order is the run's ----------------------------------------------------------------------


@given(
    name=st.sampled_from(sorted(PROBLEMS)),
    n=st.integers(1, 5),
    bound=st.one_of(st.none(), st.integers(0, 3)),
    scaling=st.sampled_from(["same", "workers", "staleness"]),
    seed=st.integers(0, 5),
)
def test_every_gradient_is_applied_when_and_as_stale_as_the_run_says(name, n, bound, scaling, seed):
    """Again, one row after another, from what the run's rows say alone."""
    problem, updates = PROBLEMS[name], 6 * n
    run = run_asynchronous(
        *(uniform(n + 1, 1e8), [1.0 + 0.3 * r for r in range(n)], 10**7, 10**7, updates, bound),
        servers=1,
        jitter=0.2,
        seed=seed,
    )
    curve = train(problem, run, 0.2, scaling)
    u, versions, losses, waiting = run.updates, [problem.start], [], []
    for row in range(updates):
        worker, clock = int(u.worker[row]), int(u.clock[row])
        gradient = problem.gradient(versions[u.pulled[row]], clock * n + worker)
        if bound == 0:
            waiting.append(gradient)
            if len(waiting) == n:
                versions.append(versions[-1] - 0.2 * np.mean(waiting, axis=0))
                waiting = []
        else:
            divisor = {"same": 1, "workers": n, "staleness": 1 + u.version[row] - u.pulled[row]}
            versions.append(versions[-1] - 0.2 / divisor[scaling] * gradient)
        losses.append(problem.loss(versions[-1]))
    together = n if bound == 0 else 1
    np.testing.assert_allclose(curve.loss[1:], losses[together - 1 :: together], rtol=1e-9)
    np.testing.assert_allclose(curve.x, versions[-1], rtol=1e-9, atol=1e-12)
    assert curve.time_s[1:].tolist() == u.applied_s[together - 1 :: together].tolist()
    assert curve.gradients.tolist() == list(range(0, updates + 1, together))


def test_the_synchronous_server_is_gradient_descent_with_the_mean_of_n_batches():
    problem = LeastSquares(seed=1)
    curve = train(problem, equal_workers(4, 40, bound=0), 0.5)
    x = problem.start
    for number in range(10):
        mean = np.mean([problem.gradient(x, 4 * number + worker) for worker in range(4)], axis=0)
        x = x - 0.5 * mean
    assert curve.x == pytest.approx(x)
    assert curve.loss[-1] == pytest.approx(problem.loss(x))


def test_one_worker_is_plain_gradient_descent_whatever_the_bound():
    problem = LeastSquares(seed=1)
    curves = [train(problem, equal_workers(1, 30, bound), 0.5) for bound in (0, 2, None)]
    assert curves[0].loss.tolist() == curves[1].loss.tolist() == curves[2].loss.tolist()


# -- the limit -----------------------------------------------------------------------------------


@pytest.mark.parametrize("delay", [0, 1, 2, 3, 5, 7, 15])
def test_the_stability_limit_is_where_the_roots_leave_the_unit_circle(delay):
    for factor, inside in ((0.999, True), (1.001, False)):
        a = factor * stability_limit(delay)
        # z**(d+1) - z**d + a
        polynomial = [1.0, -1.0, *[0.0] * (delay - 1), a] if delay else [1.0, a - 1.0]
        assert (np.abs(np.roots(polynomial)).max() < 1) == inside


@pytest.mark.parametrize("n", [1, 2, 3, 4, 6, 8])
@pytest.mark.parametrize("curvature", [1.0, 4.0])
def test_simulated_runs_converge_below_the_limit_and_diverge_above_it(n, curvature):
    """Workers alike, so that every gradient but the first is n - 1 updates old."""
    problem = LeastSquares(batch=0, curvatures=np.array([curvature, curvature / 3]))
    run = equal_workers(n, 400 * n)
    limit = stability_limit(n - 1) / curvature
    below, above = (train(problem, run, factor * limit) for factor in (0.96, 1.04))
    assert not below.diverged
    assert below.loss[-1] < 0.05
    assert above.diverged
    assert above.loss[-1] > 20
    # The synchronous server takes n times as much and does not mind.
    assert not train(problem, equal_workers(n, 400 * n, bound=0), 1.9 / curvature).diverged


def test_a_run_that_does_not_come_back_is_given_up():
    curve = train(LeastSquares(), equal_workers(8, 4000), 1.9)
    assert curve.diverged
    assert len(curve.loss) < 200
    assert math.isfinite(curve.loss[-2])
    assert curve.reached_s(1e-9) is None


def test_dividing_by_workers_or_staleness_keeps_a_run_that_would_diverge():
    run = equal_workers(8, 1200)
    problem = LeastSquares()
    assert train(problem, run, 1.0).diverged
    for scaling in ("workers", "staleness"):
        curve = train(problem, run, 1.0, scaling)
        assert curve.loss[-1] < 1e-3
        assert curve.reached_s(0.01) < curve.time_s[-1] / 2
    with pytest.raises(ValueError, match="unknown scaling 'worker'; did you mean 'workers'"):
        train(problem, run, 1.0, "worker")


def test_a_sum_of_gradients_is_their_mean_at_as_many_times_the_learning_rate():
    problem, run = LeastSquares(), equal_workers(8, 800, bound=0)
    mean, summed = train(problem, run, 0.8), train(problem, run, 0.1, aggregation="sum")
    np.testing.assert_allclose(summed.loss, mean.loss, rtol=1e-9)
    assert not mean.diverged
    assert train(problem, run, 0.8, aggregation="sum").diverged
    with pytest.raises(ValueError, match="unknown aggregation 'max'; accepted: mean, sum"):
        train(problem, run, 0.1, aggregation="max")


def test_rounds_of_the_first_gradients_are_steps_of_their_mean():
    """One of four is a backup: 30 rounds of 3, each a step along the mean of three gradients."""
    problem = LeastSquares(batch=0)  # all gradients of a round are equal
    run = run_asynchronous(uniform(5, 1e9), [1, 1, 1, 7.3], 4, 4, 90, 0, servers=1, backups=1)
    curve = train(problem, run, 0.5)
    assert curve.gradients.tolist() == list(range(0, 91, 3))
    x = problem.start
    for _ in range(30):
        x = x - 0.5 * problem.gradient(x, 0)
    np.testing.assert_allclose(curve.x, x)


def test_a_classifier_gets_worse_too_when_gradients_are_stale_and_steps_are_large():
    problem = Softmax(seed=1)
    run = equal_workers(12, 960)
    small, large = (train(problem, run, rate) for rate in (0.3, 6.0))
    assert problem.accuracy(small.x) > 0.85
    assert small.loss[-1] < 0.3 * small.loss[0]
    assert large.diverged
    assert not train(problem, equal_workers(12, 960, bound=0), 6.0).diverged

"""The process against its textbook formulas, written densely."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deuteron.tuner.strategies.surrogate.acquisition import expected_improvement, normal_cdf, probability_of_improvement
from deuteron.tuner.strategies.surrogate.gaussian_process import JITTER, Likelihood, Matern, MaternPrior, fit
from deuteron.tuner.strategies.surrogate.posterior import PoolPosterior

RNG = np.random.default_rng(7)
#: The last coordinate has three levels: there are points that share one.
POINTS, POOL = (np.column_stack([RNG.random((n, 2)), RNG.integers(0, 3, n) / 2]) for n in (12, 9))
VALUES = RNG.standard_normal(12)
KERNEL = Matern(np.log([0.3, 1.5, 0.8, 0.2, 0.05]))
#: Kernels are single precision; weights of a dozen values and a noise of 0.05 magnify that.
SINGLE = 1e-5


def covariance(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Matern-5/2 of coordinates and of whether levels differ, one pair at a time."""
    lengths, jump = np.exp(KERNEL.theta[:-2]), 0.2
    result = np.empty((len(a), len(b)))
    for i, p in enumerate(a):
        for j, q in enumerate(b):
            apart = [(x - y) ** 2 + (jump if x != y else 0) for x, y in zip(p, q, strict=True)]
            r = math.sqrt(sum(square / length**2 for square, length in zip(apart, lengths, strict=True)))
            result[i, j] = (1 + math.sqrt(5) * r + 5 * r * r / 3) * math.exp(-math.sqrt(5) * r)
    return result


def dense(points: np.ndarray, values: np.ndarray, pool: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Mean and variance by solving with the whole matrix."""
    noisy = covariance(points, points) + (0.05 + JITTER) * np.eye(len(points))
    cross = covariance(points, pool)
    mean = cross.T @ np.linalg.solve(noisy, values)
    return mean, 1 - np.einsum("ij,ij->j", cross, np.linalg.solve(noisy, cross))


def test_posterior_is_the_dense_formula() -> None:
    posterior = PoolPosterior(KERNEL, POINTS, POOL)
    mean, variance = dense(POINTS, VALUES, POOL)
    assert posterior.mean(VALUES) == pytest.approx(mean, abs=SINGLE)
    assert posterior.variance() == pytest.approx(variance, abs=SINGLE)
    assert posterior.smoothed(VALUES) == pytest.approx(dense(POINTS, VALUES, POINTS)[0], abs=SINGLE)


@pytest.mark.parametrize("start", [0, 1, 11])
def test_points_added_one_by_one_are_as_good_as_all_at_once(start: int) -> None:
    posterior = PoolPosterior(KERNEL, POINTS[:start], POOL)
    for point in POINTS[start:]:
        posterior.append(point)
    mean, variance = dense(POINTS, VALUES, POOL)
    assert posterior.mean(VALUES) == pytest.approx(mean, abs=SINGLE)
    assert posterior.variance() == pytest.approx(variance, abs=SINGLE)


def test_forgotten_points_leave_no_trace() -> None:
    posterior = PoolPosterior(KERNEL, POINTS[:5], POOL)
    for point in POINTS[5:9]:
        posterior.append(point)
    posterior.truncate(6)
    posterior.append(POINTS[10])
    kept = [0, 1, 2, 3, 4, 5, 10]
    mean, variance = dense(POINTS[kept], VALUES[kept], POOL)
    assert posterior.mean(VALUES[kept]) == pytest.approx(mean, abs=SINGLE)
    assert posterior.variance() == pytest.approx(variance, abs=SINGLE)


def test_it_grows_beyond_the_room_that_it_began_with() -> None:
    points, values = np.round(RNG.random((300, 3)), 2), RNG.standard_normal(300)
    posterior = PoolPosterior(KERNEL, points[:10], POOL)
    for point in points[10:]:
        posterior.append(point)
    assert posterior.mean(values) == pytest.approx(dense(points, values, POOL)[0], abs=20 * SINGLE)


def test_selected_candidates_are_the_same_ones() -> None:
    posterior = PoolPosterior(KERNEL, POINTS, POOL)
    mean, chosen = posterior.mean(VALUES), np.array([7, 0, 3])
    posterior.select(chosen)
    assert posterior.mean(VALUES) == pytest.approx(mean[chosen])
    posterior.append(POOL[1])
    assert len(posterior.variance()) == 3


def test_gradient_is_that_of_finite_differences() -> None:
    likelihood = Likelihood(POINTS, VALUES, MaternPrior(length=0.7, jump=0.3, noise=0.02))
    for theta in (KERNEL.theta, np.zeros(5), np.array([-1.0, 0.5, 2.0, -1.5, -4.0])):
        _, gradient = likelihood.at(theta)
        for i in range(5):
            step = np.zeros(5)
            step[i] = 3e-2  # five points, because single precision allows no smaller step
            near, far = (likelihood.at(theta + k * step)[0] - likelihood.at(theta - k * step)[0] for k in (1, 2))
            slope = (8 * near - far) / 36e-2
            assert gradient[i] == pytest.approx(slope, rel=2e-3, abs=1e-2)


def test_likelihood_is_the_dense_formula() -> None:
    prior = MaternPrior(length=2.0, jump=0.4, noise=0.1)
    value, _ = Likelihood(POINTS, VALUES, prior).at(KERNEL.theta)
    noisy = covariance(POINTS, POINTS) + (0.05 + JITTER) * np.eye(12)
    density = -0.5 * VALUES @ np.linalg.solve(noisy, VALUES) - 0.5 * np.linalg.slogdet(noisy)[1]
    density -= 0.5 * sum((KERNEL.theta - np.log([2, 2, 2, 0.4, 0.1])) ** 2)
    assert value == pytest.approx(-density, rel=1e-5)


def test_levels_that_differ_are_apart_however_near_they_are() -> None:
    kernel = Matern(np.log([1.0, 1.0, 0.15, 0.01]))
    points = np.array([[0.5, 0.5], [0.5, 0.5001], [0.5, 0.5002], [0.4999, 0.5001]])
    found = kernel.between(points[:1], points)[0]
    r = math.sqrt(5 * 0.15)
    assert found[0] == pytest.approx(1, abs=1e-6)
    assert found[1] == pytest.approx((1 + r + r * r / 3) * math.exp(-r), abs=1e-4)
    assert found[2] == pytest.approx(found[1], abs=1e-4)
    r = math.sqrt(10 * 0.15)
    assert found[3] == pytest.approx((1 + r + r * r / 3) * math.exp(-r), abs=1e-4)  # two levels differ
    eigenvalues = np.linalg.eigvalsh(kernel.between(POINTS[:, 1:], POINTS[:, 1:]))
    assert eigenvalues.min() > -1e-6


def test_a_fit_finds_the_coordinate_that_matters() -> None:
    points = RNG.random((60, 3))
    kernel = fit(points, np.sin(6 * points[:, 1]), None, MaternPrior(), 60)
    lengths = np.exp(kernel.theta[:-2])
    assert lengths[1] < 0.5 * lengths[0] and lengths[1] < 0.5 * lengths[2]
    assert kernel.noise < 1e-2
    likelihood = Likelihood(points, np.sin(6 * points[:, 1]), MaternPrior())
    assert likelihood.at(kernel.theta)[0] < likelihood.at(likelihood.medians)[0] - 10


def test_normal_distribution() -> None:
    at = np.array([-8.0, -1.959963984540054, 0.0, 1.0, 9.0])
    assert normal_cdf(at) == pytest.approx([6.220960574271785e-16, 0.025, 0.5, 0.8413447460685429, 1.0], rel=2e-7)
    dense = np.linspace(-12, 6, 2_000)
    assert normal_cdf(dense) == pytest.approx([0.5 * math.erfc(-x / math.sqrt(2)) for x in dense], rel=2e-7)


@pytest.mark.parametrize(("mean", "deviation"), [(0.0, 1.0), (0.4, 0.2), (-1.0, 0.5), (2.0, 0.7)])
def test_expected_improvement_is_its_integral(mean: float, deviation: float) -> None:
    best, grid = 0.3, np.linspace(mean - 12 * deviation, mean + 12 * deviation, 400_001)
    density = np.exp(-0.5 * ((grid - mean) / deviation) ** 2) / (deviation * math.sqrt(2 * math.pi))
    width = grid[1] - grid[0]
    expected = (np.maximum(best - grid, 0) * density).sum() * width
    arguments = np.array([mean]), np.array([deviation**2]), best
    assert expected_improvement(*arguments)[0] == pytest.approx(expected, rel=1e-4)
    assert probability_of_improvement(*arguments)[0] == pytest.approx(density[grid < best].sum() * width, rel=1e-4)

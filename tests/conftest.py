"""Settings that all tests share."""

import os

import pytest
from hypothesis import HealthCheck, settings

# Helpers whose assertions say what they compared, as those of a test do.
pytest.register_assert_rewrite("tests.browser", "tests.launched", "tests.long_run", "tests.offline")

from tests.browser import address, browser, open_page  # noqa: E402

__all__ = ["address", "browser", "open_page"]  # fixtures for all tests


def pytest_collection_modifyitems(items):
    """Of several workers (``pytest -n 2``) one runs all real ranks, one after another: they measure
    their links. Every other file stays together.
    """
    for item in items:
        real = item.get_closest_marker("gloo") or item.get_closest_marker("shaped")
        item.add_marker(pytest.mark.xdist_group("real ranks" if real else item.path.name))


# A slow moment of a shared machine is no failure; in CI the same examples run every time.
settings.register_profile(
    "syncscope",
    deadline=None,
    max_examples=60,
    derandomize="CI" in os.environ or "SYNCSCOPE_REQUIRE" in os.environ,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.register_profile("soak", settings.get_profile("syncscope"), max_examples=600)
# Outside the suite: pytest --hypothesis-profile=ten-thousand tests/test_maxmin.py (three minutes),
# and the same with tests/test_simpy_oracle.py (eight).
settings.register_profile("ten-thousand", settings.get_profile("syncscope"), max_examples=10_000)
settings.load_profile("syncscope")

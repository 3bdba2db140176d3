"""Settings that all tests share."""

import os

from hypothesis import HealthCheck, settings

from tests.browser import address, browser, open_page

__all__ = ["address", "browser", "open_page"]  # fixtures for all tests

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

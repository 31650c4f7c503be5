"""What all tests share."""

import pytest

pytest.register_assert_rewrite("recollect.testing")

pytest_plugins = ["tests.servers.redis"]

# SPDX-License-Identifier: Apache-2.0
"""Settings for all tests: no time limits on single examples (machines are shared), the same examples in every CI run."""

from __future__ import annotations

import os

from hypothesis import settings

settings.register_profile("burnin", deadline=None, derandomize=bool(os.environ.get("CI")))
settings.load_profile("burnin")

# SPDX-License-Identifier: Apache-2.0
"""One living head for a campaign; a dead one's lock is removed, another campaign's never."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from burnin import lock
from burnin.errors import CampaignError

HOLDER = """
import sys, time
from pathlib import Path
from burnin import lock
lock.take(Path(sys.argv[1]), Path(sys.argv[2]))
print("held", flush=True)
time.sleep(60)
"""


def test_a_second_head_is_refused_until_the_first_is_dead(tmp_path: Path) -> None:
    campaign, locks = tmp_path / "results" / "demo", tmp_path / "locks"
    locks.mkdir()
    ours, other = locks / "0.output.lock", locks / "1.output.lock"
    ours.write_text(f"{campaign}/single/heat0/gate.json\n")
    other.write_text(f"{tmp_path}/results/other/single/heat0/gate.json\n")
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(campaign), str(locks)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None and holder.stdout.readline() == "held\n"
        ours.write_text(f"{campaign}/single/heat0/gate.json\n")
        with pytest.raises(CampaignError, match="another snakemake is running") as caught:
            lock.take(campaign, locks)
        assert str(holder.pid) in str(caught.value), "it names the head that is alive"
        assert ours.exists()
    finally:
        holder.send_signal(signal.SIGKILL)
        holder.wait()
    time.sleep(0.05)
    assert lock.take(campaign, locks) == [ours]
    assert not ours.exists() and other.exists()
    assert lock.take(campaign, locks) == [], "the same head may ask again"

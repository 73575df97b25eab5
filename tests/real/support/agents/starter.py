"""A plane in a process of its own that only starts one runtime, says its address and waits.

usage: starter.py ROOT SPEC-AS-JSON
"""

import asyncio
import json
import sys
import time
from pathlib import Path

from tenure.adapters.clock.system import SystemClock
from tenure.adapters.runtime.process import ProcessRuntime
from tenure.testing.contracts.provider import key

runtime = ProcessRuntime(Path(sys.argv[1]), clock=SystemClock(), sandbox="off")
print("loaded", flush=True)
sys.stdin.readline()
print(asyncio.run(runtime.ensure(key(), json.loads(sys.argv[2])))["address"], flush=True)
time.sleep(600)

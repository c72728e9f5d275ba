# SPDX-License-Identifier: Apache-2.0
"""Stands in for pip: `python fake_pip.py SCRIPT.json download ... --dest DIR REQUIREMENT`.

The script says what to do: `copy` a wheel slowly, `fail` with a message, be `missing`, or `hang`.
"""

import json
import shutil
import sys
import time
from pathlib import Path

script_path = Path(sys.argv[1])
script = json.loads(script_path.read_text())
arguments = sys.argv[2:]
if script["act"] == "missing":
    sys.exit("No module named pip")
if arguments == ["--version"]:
    sys.exit(0)
with (script_path.parent / "calls").open("a") as calls:
    calls.write(" ".join(arguments) + "\n")
dest = Path(arguments[arguments.index("--dest") + 1])
if script["act"] == "fail":
    sys.exit("ERROR: no route to the index")
wheel = Path(script["wheel"])
growing = dest / "growing.tmp"
with wheel.open("rb") as source, growing.open("wb") as sink:
    while chunk := source.read(script.get("chunk_bytes", 1 << 20)):
        sink.write(chunk)
        sink.flush()
        time.sleep(script.get("pause_s", 0))
        if script["act"] == "hang":
            time.sleep(60)
shutil.move(growing, dest / wheel.name)

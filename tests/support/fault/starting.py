"""What ``test_killed_together.py`` kills: a process that runs fork servers and a build as the
daemon does. Says "ready" when all of it runs. ``python -m tests.support.fault.starting FOLDER``.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from warmcc.daemon.cuda.warm.fork_servers import ForkServer, ServerLibrary
from warmcc.daemon.system.runner import Runner
from warmcc.daemon.toolchain.ninja import executable

# Stops at once, or never when it is told to be slow; a unit that says so is compiled without end.
PROGRAM = r"""
#include <stdio.h>
#include <string.h>
#include <unistd.h>
int main(int count, char** words) {
  if (count > 1) puts("reading"), fflush(stdout);
  while (count > 1) pause();
  char text[8] = "";
  FILE* unit = fopen("unit", "r");
  if (unit == NULL || fscanf(unit, "%7s", text) != 1) return 3;
  while (strcmp(text, "endless") == 0) pause();
  return 0;
}
"""
BUILD = """
rule endless
  command = sleep 1000
build a: endless
build b: endless
"""


async def run(folder: Path) -> None:
    runner = Runner()
    environment = {"PATH": os.environ["PATH"], "FOLDER": str(folder)}
    library = await ServerLibrary(folder / "library", runner).path("gcc", environment)
    servers = [ForkServer(name, runner, folder) for name in ("serving", "ahead", "slow")]
    for server in servers[:2]:
        await server.start(["./program"], environment, library, stop="unit")
    (folder / "unit").write_text("endless")
    # As gcc's driver waits for its front end, a shell waits for the slow one.
    ninja = executable()
    assert ninja is not None
    running = [
        asyncio.create_task(work)
        for work in (
            servers[0].run(folder, 1000.0),
            servers[2].start(
                ["sh", "-c", "./program slow; true"], environment, library, stop="unit"
            ),
            runner.run([ninja, "-j", "2"], cwd=folder, environment=environment, timeout=1000.0),
        )
    ]
    await servers[1].fork_ahead()
    print("ready", flush=True)
    await asyncio.gather(*running)


if __name__ == "__main__":
    place = Path(sys.argv[1])
    os.environ["WARMCC_RUNTIME_DIR"] = str(place)
    (place / "program.c").write_text(PROGRAM)
    (place / "build.ninja").write_text(BUILD)
    subprocess.run(["gcc", "program.c", "-o", "program"], cwd=place, check=True)
    asyncio.run(run(place))

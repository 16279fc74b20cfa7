"""Runs a build script as cargo would: run_build_script.py PROGRAM OUTPUT PACKAGE.

OUTPUT receives a folder `out`, which is the script's OUT_DIR, and a file `flags` with a line for
each instruction of the script to rustc, in the format of rustc.sh.
"""

import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Iterator

INSTRUCTION = re.compile(r"cargo::?(?:(rustc-[a-z-]+)|error)=(.*)")
FLAGS = {
    "rustc-cfg": "--cfg={}",
    "rustc-check-cfg": "--check-cfg={}",
    "rustc-env": "env {}",
    "rustc-link-arg": "-Clink-arg={}",
    "rustc-link-lib": "-l{}",
    "rustc-link-search": "-L{}",
}


def flags(text: str) -> Iterator[str]:
    """Yield the script's instructions to rustc, as one argument per line."""
    for line in text.splitlines():
        found = INSTRUCTION.match(line)
        if found is None:
            continue
        if found[1] not in FLAGS:
            sys.exit(f"no stand-in for this instruction of the build script: {line}")
        yield FLAGS[found[1]].format(found[2]) + "\n"


def main() -> None:
    """Run the script, and write its output and flags."""
    program, output, package = sys.argv[1:]
    here = pathlib.Path.cwd()
    out = here / output / "out"
    out.mkdir(parents=True)
    folder = here / package
    folder.mkdir(parents=True, exist_ok=True)
    environment = {name: value.replace("${pwd}", str(here)) for name, value in os.environ.items()}
    environment |= {
        "CARGO_MANIFEST_DIR": str(folder),
        "DEBUG": "false",
        "NUM_JOBS": "1",
        "OPT_LEVEL": "0",
        "OUT_DIR": str(out),
        "PROFILE": "debug",
    }
    command = [here / program]
    done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"the build script failed ({done.returncode})\n{done.stdout}")
    (here / output / "flags").write_text("".join(flags(done.stdout)))


main()

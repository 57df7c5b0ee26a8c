"""Two training processes side by side, as torchrun would start them, without the time that torchrun takes.

python pair.py ARGUMENTS OF nmt-train
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def main() -> int:
    shared = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port()), "OMP_NUM_THREADS": "1"}
    shared |= {"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    command = [sys.executable, "-m", "nmt_cli.train", *sys.argv[1:]]
    both = [
        subprocess.Popen(command, env={**os.environ, **shared, "RANK": rank, "LOCAL_RANK": rank}) for rank in ("0", "1")
    ]
    return max(abs(process.wait()) for process in both)


if __name__ == "__main__":
    sys.exit(main())

"""The commands: thin files over the library, one a command, and the launcher that they share.

Every command imports this package first: as a console script, with ``python -m``, and as a rank of torchrun. Its worker
processes inherit the environment. So variables that a library reads while it is loaded are set here, and only here. Console
scripts handle signals in ``nmt_cli.start``; with ``python -m`` this package is the only place before a command's imports.
"""

import sys

from nmt.threads import limit_spinning
from nmt_cli.process import leave_on_signals

limit_spinning()
if sys.argv[:1] == [
    "-m"
]:  # Python has not found the command yet: `python -m nmt_cli.train`, also as a rank of torchrun
    leave_on_signals()

"""``python -m nmt train`` is ``nmt train``, and ``nmt-train``."""

from nmt_cli.start import umbrella

if __name__ == "__main__":
    umbrella()

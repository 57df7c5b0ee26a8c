"""Make the second device known to a command: ``--user-dir`` names this folder."""

from tests.devices.second_device import install

install()

"""Old names for plug-ins: these modules have moved to nmt.layers and nmt.models."""

import sys

from nmt.layers import padding, stack
from nmt.models.recurrent import layers as recurrent
from nmt.models.transformer import attention

for _name, _module in {"attention": attention, "padding": padding, "recurrent": recurrent, "stack": stack}.items():
    sys.modules[f"{__name__}.{_name}"] = _module

"""The options of the Transformer under their old name, which notebooks and plug-ins import."""

from nmt.models.transformer.config import NormOrder as NormOrder
from nmt.models.transformer.config import PositionKind as PositionKind
from nmt.models.transformer.config import TransformerConfig as TransformerConfig

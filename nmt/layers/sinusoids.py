"""The formula of sinusoidal positions, without torch: Vaswani et al. 2017, section 3.5, and variants of other toolkits."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class SinusoidLayout(Enum):
    """The order of the sines and cosines of a position."""

    interleaved = "interleaved"  # sine and cosine of each wavelength in turn: the paper
    halves = "halves"  # all sines, then all cosines: tensor2tensor, fairseq, Marian


class Wavelengths(Enum):
    """The spacing of the D/2 wavelengths from 2 pi to base * 2 pi."""

    paper = "paper"  # 2 pi base^(2i/D): the last is slightly below base * 2 pi
    tensor2tensor = "tensor2tensor"  # 2 pi base^(i/(D/2 - 1)): the last is base * 2 pi; fairseq too


@dataclass(frozen=True)
class Sinusoids:
    """The formula of a table of positions; row p is for position p + ``offset``."""

    width: int  # D, even
    layout: SinusoidLayout = SinusoidLayout.interleaved
    wavelengths: Wavelengths = Wavelengths.paper
    base: float = 10000.0
    offset: int = 0

    def radians(self) -> npt.NDArray[np.float64]:
        """Return the wavelengths divided by 2 pi, [D/2]."""
        import numpy as np  # options of a model need only the names above

        pairs = np.arange(self.width // 2)
        whole = self.width / 2 if self.wavelengths is Wavelengths.paper else max(1, self.width / 2 - 1)
        return np.asarray(self.base ** (pairs / whole), dtype=np.float64)

    def table(self, count: int) -> npt.NDArray[np.float32]:
        """[count, D]: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i + 1) = cos of the same angle."""
        import numpy as np

        angles = np.arange(self.offset, self.offset + count)[:, None] / self.radians()
        pair = [np.sin(angles), np.cos(angles)]
        by_position = np.stack(pair, axis=-1).reshape(count, -1) if self.interleaved else np.concatenate(pair, axis=-1)
        return by_position.astype(np.float32)

    @property
    def interleaved(self) -> bool:
        return self.layout is SinusoidLayout.interleaved

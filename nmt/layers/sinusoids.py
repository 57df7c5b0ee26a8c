"""Where a piece stands, as sines and cosines: section 3.5 of the paper, and how other toolkits write it. No torch here."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np
import numpy.typing as npt


class SinusoidLayout(Enum):
    """In which order the sines and cosines of a position stand."""

    interleaved = "interleaved"  # sine and cosine of each wavelength side by side: the paper
    halves = "halves"  # all sines, then all cosines: tensor2tensor, fairseq, Marian


class Wavelengths(Enum):
    """How the D/2 wavelengths are spread from 2 pi to base * 2 pi."""

    paper = "paper"  # 2 pi base^(2i/D): the last one stays a little below
    tensor2tensor = "tensor2tensor"  # 2 pi base^(i/(D/2 - 1)): the last one is reached; fairseq too


@dataclass(frozen=True)
class Sinusoids:
    """A table of positions by its formula. Row p is that of position p + ``offset``."""

    width: int  # D, even
    layout: SinusoidLayout = SinusoidLayout.interleaved
    wavelengths: Wavelengths = Wavelengths.paper
    base: float = 10000.0
    offset: int = 0

    def radians(self) -> npt.NDArray[np.float64]:
        """[D/2] the wavelengths divided by 2 pi."""
        pairs = np.arange(self.width // 2)
        whole = self.width / 2 if self.wavelengths is Wavelengths.paper else max(1, self.width / 2 - 1)
        return np.asarray(self.base ** (pairs / whole), dtype=np.float64)

    def table(self, count: int) -> npt.NDArray[np.float32]:
        """[count, D]: PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i + 1) = cos of the same, as the paper has it."""
        angles = np.arange(self.offset, self.offset + count)[:, None] / self.radians()
        pair = [np.sin(angles), np.cos(angles)]
        by_position = np.stack(pair, axis=-1).reshape(count, -1) if self.interleaved else np.concatenate(pair, axis=-1)
        return by_position.astype(np.float32)

    @property
    def interleaved(self) -> bool:
        return self.layout is SinusoidLayout.interleaved

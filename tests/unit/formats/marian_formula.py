"""Marian's Transformer, written from its own description in numpy: what a model in a .npz gives a translation.

It knows nothing of our models: names, transposed matrices, sinusoids and the empty first symbol are Marian's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class MarianFormula:
    """A model with the arrays of its .npz and the options that are stored in it."""

    def __init__(self, arrays: Mapping[str, Array], options: Mapping[str, Any]) -> None:
        self._arrays = {name: array.astype(np.float64) for name, array in arrays.items()}
        self._options = options
        self._width, self._heads = options["dim-emb"], options["transformer-heads"]

    def log_probabilities(self, source: Sequence[int], target: Sequence[int]) -> Array:
        """Of the pieces of a target; both end with the end symbol."""
        memory = self._positions(self._embedding("encoder")[list(source)])
        for number in range(self._options["enc-depth"]):
            memory = self._attend(f"encoder_l{number + 1}_self", memory, None, ahead=True)
            memory = self._feed_forward(f"encoder_l{number + 1}_ffn", memory)
        memory = self._top("encoder", memory)
        table = self._embedding("decoder")
        state = self._positions(np.concatenate([np.zeros((1, self._width)), table[list(target[:-1])]]))
        for number in range(self._options["dec-depth"]):
            state = self._attend(f"decoder_l{number + 1}_self", state, None, ahead=False)
            state = self._attend(f"decoder_l{number + 1}_context", state, memory, ahead=True)
            state = self._feed_forward(f"decoder_l{number + 1}_ffn", state)
        state = self._top("decoder", state)
        output = self._arrays.get("decoder_ff_logit_out_Wt", table)
        logits = state @ output.T + self._arrays.get("decoder_ff_logit_out_b", 0.0)
        logits -= logits.max(-1, keepdims=True)
        scores = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
        found: Array = scores[np.arange(len(target)), list(target)]
        return found

    def _embedding(self, side: str) -> Array:
        return self._arrays["Wemb" if "Wemb" in self._arrays else f"{side}_Wemb"]

    def _positions(self, embedded: Array) -> Array:
        half = self._width // 2
        angles = np.arange(len(embedded))[:, None] * 10000.0 ** (-np.arange(half) / (half - 1))
        return embedded * np.sqrt(self._width) + np.concatenate([np.sin(angles), np.cos(angles)], axis=1)

    def _attend(self, name: str, state: Array, memory: Array | None, *, ahead: bool) -> Array:
        read = self._before(f"{name}_Wo", state)
        keys = read if memory is None else memory
        query, key, value = (self._by_head(name, part, one) for part, one in (("q", read), ("k", keys), ("v", keys)))
        logits = query @ key.swapaxes(1, 2) / np.sqrt(self._width // self._heads)
        if not ahead:
            logits = logits + np.triu(np.full(logits.shape[1:], -1e9), 1)
        weights = np.exp(logits - logits.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        read = (weights @ value).swapaxes(0, 1).reshape(len(state), self._width)
        return self._after(f"{name}_Wo", state, self._linear(name, "o", read))

    def _by_head(self, name: str, part: str, read: Array) -> Array:
        return self._linear(name, part, read).reshape(len(read), self._heads, -1).swapaxes(0, 1)

    def _feed_forward(self, name: str, state: Array) -> Array:
        inner = self._linear(name, "1", self._before(f"{name}_ffn", state))
        swish = self._options["transformer-ffn-activation"] == "swish"
        inner = inner / (1 + np.exp(-inner)) if swish else inner.clip(0)
        return self._after(f"{name}_ffn", state, self._linear(name, "2", inner))

    def _linear(self, name: str, part: str, read: Array) -> Array:
        made: Array = read @ self._arrays[f"{name}_W{part}"] + self._arrays.get(f"{name}_b{part}", 0.0)
        return made

    def _before(self, name: str, state: Array) -> Array:
        return self._norm(name, "_pre", state) if self._options["transformer-preprocess"].strip("da") else state

    def _after(self, name: str, state: Array, made: Array) -> Array:
        return (
            self._norm(name, "", state + made) if self._options["transformer-postprocess"].strip("da") else state + made
        )

    def _top(self, side: str, state: Array) -> Array:
        return (
            self._norm(f"{side}_top", "", state) if self._options["transformer-postprocess-top"].strip("da") else state
        )

    def _norm(self, name: str, ending: str, state: Array) -> Array:
        if f"{name}_rms_scale{ending}" in self._arrays:
            scaled: Array = state / np.sqrt((state**2).mean(-1, keepdims=True) + 1e-6)
            return scaled * self._arrays[f"{name}_rms_scale{ending}"]
        centred = state - state.mean(-1, keepdims=True)
        scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-6)
        return scaled * self._arrays[f"{name}_ln_scale{ending}"] + self._arrays[f"{name}_ln_bias{ending}"]

"""Greedy search: the most probable token, again and again. Shares nothing with the beam, so each tests the other."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from nmt.data.vocabulary import BOS, EOS, PAD
from nmt.errors import DataError, UsageError
from nmt.interface import Decodable, Hypothesis
from nmt.search import searches
from nmt.search.greedy_config import GreedyConfig
from nmt.search.requests import Request, refuse_inclusion
from nmt.search.rules import Rules
from nmt.search.tensor_books import ForcedTokens, changed, follow, forbid


@searches.register("greedy", GreedyConfig)
class GreedySearch:
    """Greedy search. A hypothesis' score is its log-probability: with one hypothesis there is nothing to rank."""

    def __init__(self, config: GreedyConfig, nbest: int = 1, scored: bool = True) -> None:
        """``scored``: without it hypotheses have no scores (NaN), and no step is normalised for their sake."""
        if nbest > 1:
            raise UsageError(f"nbest={nbest}, but greedy search finds one translation; use --search beam")
        self.config = config
        self._scored = scored

    def __call__(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        *,
        attention: bool = False,
        requests: Sequence[Request] | None = None,
    ) -> list[list[Hypothesis]]:
        refuse_inclusion(requests, "greedy")
        forced = ForcedTokens(requests, model, source_lengths, self.config)
        rules = Rules(self.config, requests, source.size(0), 1)
        with torch.inference_mode():
            tokens, scores, attended = self._search(model, source, source_lengths, forced, rules, attention)
        lengths = (tokens == EOS).to(torch.int8).argmax(1) + 1  # [B] eos included
        return [
            [self._hypothesis(tokens[row, :length], scores[row, :length], attended, row, width, length < limit)]
            for row, (length, width, limit) in enumerate(
                zip(lengths.tolist(), source_lengths.tolist(), forced.limits.tolist())
            )
        ]

    def _search(
        self,
        model: Decodable,
        source: Tensor,
        source_lengths: Tensor,
        forced: ForcedTokens,
        rules: Rules,
        attention: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokens and their log-probabilities, or scores in their place, [B, T], padded, and attention [B, T, S]."""
        memory, state = model.start(model.encode(source, source_lengths), 1)
        steps: list[tuple[Tensor, ...]] = []  # tokens [B], scores [B], attention [B, S]
        sentences = torch.arange(source.size(0), device=source.device)  # [b] those still in the batch
        tokens = torch.full_like(sentences, BOS)
        for length in itertools.count(1):
            output = model.step(tokens, memory, state, attention)
            ranked = output.log_probabilities() if self._scored or rules.any else output.scores.float()  # [b, V]
            tokens = self._choose(ranked, rules, length)
            if (given := forced.tokens(sentences, length)) is not None:
                tokens = torch.where(given >= 0, given, tokens)
            scores = ranked.gather(1, tokens[:, None]).squeeze(1)
            results = (tokens, scores) if output.attention is None else (tokens, scores, output.attention)
            steps.append(tuple(_spread(result, sentences, source.size(0)) for result in results))
            staying = (tokens != EOS).nonzero().squeeze(1)
            if len(staying) == 0:
                break
            state = output.state
            if len(staying) < len(tokens):
                tokens, sentences = tokens[staying], sentences[staying]
                memory, state = memory.rows(staying), state.rows(staying)
            follow(rules, tokens, staying, staying)
        columns = [torch.stack(column, 1).cpu() for column in zip(*steps)]
        return columns[0], columns[1], columns[2] if len(columns) > 2 else None

    def _choose(self, ranked: Tensor, rules: Rules, length: int) -> Tensor:
        """[b] the most probable token; of equal ones the first. Where rules leave none, eos."""
        banned = [PAD, BOS] if length > rules.min_len else [PAD, BOS, EOS]
        # A copy: the step's scores may be a part of the model.
        allowed = changed(ranked, 0.0, rules.changes()) if rules.any else ranked.clone()
        forbid(allowed, banned)
        best = allowed.max(1)
        return torch.where(best.values == -float("inf"), EOS, best.indices)

    def _hypothesis(
        self, tokens: Tensor, scores: Tensor, attention: Tensor | None, row: int, width: int, finished: bool
    ) -> Hypothesis:
        total = float(scores.sum())
        if math.isnan(total):
            raise DataError("the model's scores are not numbers (NaN): its checkpoint is damaged or diverged")
        if not self._scored:
            total, scores = math.nan, torch.full_like(scores, math.nan)
        return Hypothesis(
            tokens=tokens.clone().numpy(),
            score=total,
            log_probability=total,
            token_scores=scores.clone().numpy(),
            attention=None if attention is None else attention[row, : len(tokens), :width].float().clone().numpy(),
            finished=finished,
        )


def _spread(rows: Tensor, sentences: Tensor, num_sentences: int) -> Tensor:
    """Rows of the sentences still there -> rows of all."""
    full = rows.new_zeros((num_sentences, *rows.shape[1:]))
    full[sentences] = rows
    return full

"""CTranslate2: a fast translator in C++ for models that are trained (https://opennmt.net/CTranslate2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import make_dataclass
from pathlib import Path
from typing import Any

from nmt.config.exchange import ExportConfig, ImportConfig, Quantization
from nmt.formats import ComparedModel, Format, PortableModel, formats
from nmt.formats.ctranslate2.folder import CTranslate2Folder
from nmt.formats.ctranslate2.weights import write_specification
from nmt.formats.model_card import (
    TEXT,
    about_length_penalty,
    cut_by_sentencepiece,
    example,
    language_tokens_for,
    pieces_for,
)
from nmt.storage.run_folder import split_paths

_OF_TEXT = """sentencepiece tokenizes and detokenizes text (`pip install ctranslate2 sentencepiece`).

import ctranslate2
import sentencepiece

folder = "."  # the folder of this file
source = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer/$source.model")
target = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer/$target.model")
translator = ctranslate2.Translator(folder)
tokens = source.encode(["$text"], out_type=str)
for result in translator.translate_batch(tokens, beam_size=5, suppress_sequences=[["<pad>"], ["<s>"]]):
    print(target.decode(result.hypotheses[0]))
"""
_OF_LANGUAGES = """sentencepiece tokenizes and detokenizes text (`pip install ctranslate2 sentencepiece`).

import ctranslate2
import sentencepiece

folder = "."  # the folder of this file
text = sentencepiece.SentencePieceProcessor(model_file=f"{folder}/tokenizer/joint.model")
translator = ctranslate2.Translator(folder)
tokens = [$before + sentence for sentence in text.encode(["$text"], out_type=str)]
first = [$first] * len(tokens)
options = {"beam_size": 5, "suppress_sequences": [["<pad>"], ["<s>"]]}
for result in translator.translate_batch(tokens, target_prefix=first, **options):
    print(text.decode(result.hypotheses[0][$count:]))
"""
_OF_PIECES = """Tokenize text as for training; `tokenizer/` holds nmt's tokenizer.

import ctranslate2

folder = "."  # the folder of this file
translator = ctranslate2.Translator(folder)
for result in translator.translate_batch([$tokens], beam_size=5, suppress_sequences=[["<pad>"], ["<s>"]]):
    print(" ".join(result.hypotheses[0]))
"""


@formats.register("ctranslate2", make_dataclass("CTranslate2Config", ()))
class CTranslate2(Format):
    """Reads and writes folders for ``ctranslate2.Translator``."""

    name = "ctranslate2"
    library = "ctranslate2"
    quantizes = True

    def recognizes(self, folder: Path) -> bool:
        return (folder / "model.bin").is_file()

    def read(self, options: ImportConfig) -> list[PortableModel]:
        return [CTranslate2Folder(Path(path), options).model() for path in split_paths(options.path)]

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        self.require_library()
        from ctranslate2.converters import Converter

        spec = write_specification(model.weights, options.longest)
        _set_vocabularies(spec, model)

        class FilledConverter(Converter):  # type: ignore[misc]
            def _load(self) -> Any:
                return spec

        quantization = None if options.quantization is Quantization.float32 else options.quantization.value
        FilledConverter().convert(str(folder), quantization=quantization, force=True)
        model.pair.save(folder / "tokenizer")

    def read_export(self, folder: Path) -> ComparedModel:
        return CTranslate2Export(folder)

    def usage(self, model: PortableModel) -> str:
        stems = ["joint"] * 2 if model.pair.one_tokenizer else ["source", "target"]
        how = example(_OF_TEXT, text=TEXT, source=stems[0], target=stems[1])
        if model.pair.languages and model.pair.one_tokenizer:
            before, first = language_tokens_for(model.pair)
            how = example(_OF_LANGUAGES, text=TEXT, before=before, first=first, count=len(first))
        if not cut_by_sentencepiece(model):
            how = example(_OF_PIECES, tokens=pieces_for(model))
        return f"The model translates tokens, not text. {how}\n\n{about_length_penalty(model, 'CTranslate2')}"


class CTranslate2Export(ComparedModel):
    def __init__(self, folder: Path) -> None:
        import ctranslate2

        self._translator = ctranslate2.Translator(str(folder), device="cpu", compute_type="default", inter_threads=1)

    def log_probabilities(self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]]) -> list[float]:
        batch = [list(source) for source in sources], [list(target) for target in targets]
        return [float(sum(scored.log_probs)) for scored in self._translator.score_batch(*batch)]

    def translate(self, sources: Sequence[Sequence[str]], longest: int, first: Sequence[str]) -> list[list[str]]:
        results = self._translator.translate_batch(
            [list(source) for source in sources],
            [list(first)] * len(sources) if first else None,
            beam_size=1,
            min_decoding_length=1 + len(first),
            max_decoding_length=longest + len(first),
            suppress_sequences=[["<pad>"], ["<s>"]],  # what no search of ours writes
        )
        return [list(result.hypotheses[0])[len(first) :] for result in results]


def _set_vocabularies(spec: Any, model: PortableModel) -> None:
    source, target = (list(side.vocabulary.pieces) for side in (model.pair.source, model.pair.target))
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.config.bos_token, spec.config.eos_token, spec.config.unk_token = "<s>", "</s>", "<unk>"
    spec.config.decoder_start_token = target[model.weights.start]
    spec.config.add_source_bos, spec.config.add_source_eos = False, True
    spec.config.layer_norm_epsilon = model.weights.source.layers[0].self_norm.epsilon

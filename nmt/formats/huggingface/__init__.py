"""Models of Hugging Face's transformers: reads and writes Marian, Pegasus, M2M100, NLLB, mBART-50 and T5, reads FSMT.

Marian (OPUS-MT) has norms after each sublayer, Pegasus before it; both have sinusoids in halves. FSMT is fairseq's
Transformer with two vocabularies. M2M100, NLLB and mBART-50 have tokens of many languages.
"""

from __future__ import annotations

from dataclasses import make_dataclass
from pathlib import Path

from nmt.config.exchange import ExportConfig, ImportConfig
from nmt.formats import ComparedModel, Format, PortableModel, formats
from nmt.formats.huggingface.folder import HuggingFaceFolder
from nmt.formats.huggingface.multilingual_writing import is_multilingual, source_language
from nmt.formats.huggingface.t5_writing import write_t5
from nmt.formats.huggingface.writing import TransformersExport, write_folder
from nmt.formats.model_card import (
    TEXT,
    about_length_penalty,
    cut_by_sentencepiece,
    example,
    language_tokens_for,
    pieces_for,
)
from nmt.models.transformer.weights import Buckets
from nmt.storage.reading import read_mapping
from nmt.storage.run_folder import split_paths

_OF_TEXT = """With transformers and sentencepiece (`pip install torch transformers sentencepiece`):

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "."  # the folder of this file
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
inputs = tokenizer(["$text"], return_tensors="pt", padding=True)
for output in model.generate(**inputs):
    print(tokenizer.decode(output, skip_special_tokens=True))
"""
_OF_LANGUAGES = """With transformers and sentencepiece (`pip install torch transformers sentencepiece`):

from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

folder = "."  # the folder of this file
tokenizer = AutoTokenizer.from_pretrained(folder, src_lang="$source")
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
inputs = tokenizer(["$text"], return_tensors="pt", padding=True)
first = tokenizer.convert_tokens_to_ids("$target")  # the target language
for output in model.generate(**inputs, forced_bos_token_id=first):
    print(tokenizer.decode(output, skip_special_tokens=True))
"""
_OF_PIECES = """With transformers (`pip install torch transformers`). Tokenize text as for training.

import json
import torch
from transformers import AutoModelForSeq2SeqLM

folder = "."  # the folder of this file
model = AutoModelForSeq2SeqLM.from_pretrained(folder)
with open(f"{folder}/vocab.json", encoding="utf-8") as file:
    ids = json.load(file)
inputs = [*(ids[token] for token in $tokens), model.config.eos_token_id]
outputs = model.generate(input_ids=torch.tensor([inputs]))
with open(f"{folder}/$vocabulary", encoding="utf-8") as file:
    tokens = list(json.load(file))  # in the order of their ids
print(" ".join(tokens[number] for number in outputs[0]))
"""


@formats.register("huggingface", make_dataclass("HuggingFaceConfig", ()))
class HuggingFace(Format):
    """Reads and writes folders of ``save_pretrained``."""

    name = "huggingface"
    has_tokenizers = True
    library = "transformers"

    def recognizes(self, folder: Path) -> bool:
        path = folder / "config.json"
        return path.is_file() and "model_type" in read_mapping(path)

    def read(self, options: ImportConfig) -> list[PortableModel]:
        return [HuggingFaceFolder(Path(path), options).model() for path in split_paths(options.path)]

    def write(self, model: PortableModel, folder: Path, options: ExportConfig) -> None:
        self.require_library()
        write = write_t5 if isinstance(model.weights.source.positions, Buckets) else write_folder
        write(model, folder, options)

    def read_export(self, folder: Path) -> ComparedModel:
        return TransformersExport(folder)

    def usage(self, model: PortableModel) -> str:
        before, first = language_tokens_for(model.pair)
        is_t5 = isinstance(model.weights.source.positions, Buckets)
        if is_multilingual(model):
            how = example(_OF_LANGUAGES, text=TEXT, source=source_language(model.pair, before[0]), target=first[0])
        elif cut_by_sentencepiece(model) and (is_t5 or not before):
            how = example(_OF_TEXT, text=" ".join([*before, TEXT]))
        else:
            vocabulary = "vocab.json" if model.pair.shared else "target_vocab.json"
            how = example(_OF_PIECES, tokens=[*before, *pieces_for(model)], vocabulary=vocabulary)
        return f"{how}\n\n{about_length_penalty(model, 'transformers')}"

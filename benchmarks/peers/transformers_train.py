"""Train Hugging Face's MarianMTModel on given batches and print its speed: a plain loop, Adam, label smoothing 0.1."""

import sys
import time

import numpy as np
import torch
from transformers import MarianConfig, MarianMTModel

PAD, BOS, EOS, IGNORED = 0, 2, 3, -100


def padded(flat, lengths, value):
    """Return rows of different lengths as one padded tensor."""
    rows = torch.full((len(lengths), int(lengths.max())), value, dtype=torch.long)
    start = 0
    for row, length in zip(rows, lengths):
        row[:length] = torch.from_numpy(flat[start : start + length].astype(np.int64))
        start += length
    return rows


def main():
    path, layers, width, inner, heads, dropout, entries, updates, every, precision, threads = sys.argv[1:]
    torch.set_num_threads(int(threads))
    torch.manual_seed(1)
    config = MarianConfig(
        vocab_size=int(entries), d_model=int(width), encoder_layers=int(layers), decoder_layers=int(layers),
        encoder_ffn_dim=int(inner), decoder_ffn_dim=int(inner), encoder_attention_heads=int(heads),
        decoder_attention_heads=int(heads), dropout=float(dropout), attention_dropout=0.0, activation_dropout=0.0,
        pad_token_id=PAD, eos_token_id=EOS, bos_token_id=BOS, decoder_start_token_id=BOS, forced_eos_token_id=None,
        activation_function="relu", scale_embedding=True, share_encoder_decoder_embeddings=True, use_cache=False,
    )  # fmt: skip
    model = MarianMTModel(config).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-4, betas=(0.9, 0.98), eps=1e-9)
    loss_of = torch.nn.CrossEntropyLoss(ignore_index=IGNORED, label_smoothing=0.1, reduction="sum")
    batches = np.load(path)
    tokens, began = 0, time.monotonic()
    for update in range(int(updates)):
        number = update % int(batches["count"])
        source = padded(batches[f"src{number}"], batches[f"src_lengths{number}"], PAD)
        target = padded(batches[f"tgt{number}"], batches[f"tgt_lengths{number}"], IGNORED)
        shifted = torch.cat([torch.full((len(target), 1), BOS), target[:, :-1].clamp(min=0)], 1)
        real = int((target != IGNORED).sum())
        with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bf16"):
            logits = model(input_ids=source, attention_mask=source != PAD, decoder_input_ids=shifted).logits
            loss = loss_of(logits.flatten(0, 1).float(), target.flatten()) / real
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        tokens += real
        if (update + 1) % int(every) == 0:
            now = time.monotonic()
            print("speed", round(tokens / (now - began), 1), flush=True)
            tokens, began = 0, now


if __name__ == "__main__":
    main()

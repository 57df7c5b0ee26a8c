"""Train on a corpus folder with Lightning, and write a model folder: train.py CORPUS MODEL_FOLDER."""

import sys

import lightning
import torch

import nmt


class Translation(lightning.LightningModule):
    def __init__(self, corpus: str, architecture: str, **options):
        super().__init__()
        self.corpus, self.tokenizer = corpus, nmt.tokenizer(corpus)
        self.model = nmt.model(architecture, self.tokenizer, **options)
        self.criterion = nmt.criterion("label_smoothed_cross_entropy")

    def training_step(self, batch, index):
        report = self.criterion(self.model, batch)
        return report.loss_sum / report.denominator

    def validation_step(self, batch, index):
        report = self.criterion(self.model, batch)
        self.log("nll", report.nll_sum / report.num_tokens, prog_bar=True, batch_size=batch.num_tokens)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=0.001)

    def train_dataloader(self):
        return nmt.batches(self.corpus, epoch=self.current_epoch + 1, max_tokens=2000)

    def val_dataloader(self):
        return nmt.batches(self.corpus, split="valid", max_tokens=2000)


if __name__ == "__main__":
    corpus, folder = sys.argv[1:]
    module = Translation(corpus, "transformer_tiny", dropout=0.1)
    trainer = lightning.Trainer(max_epochs=10, reload_dataloaders_every_n_epochs=1, gradient_clip_val=1.0)
    trainer.fit(module)
    nmt.save(module.model, module.tokenizer, folder)

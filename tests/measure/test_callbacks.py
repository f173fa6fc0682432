"""Recordings of other people's training loops: Keras, PyTorch Lightning, Hugging Face."""

from __future__ import annotations

import numpy as np
import pytest

from deep500.errors import MissingBackend
from deep500.measure import Recording
from deep500.measure.callbacks import LoopTimer, lightning_callback, transformers_callback


def check(recording, steps, epochs, validations=0):
    assert recording["step"].count == steps and recording["epoch"].count == epochs
    if validations:
        assert recording["validation"].count == validations
    shares = recording.breakdown()
    assert sum(shares.values()) == pytest.approx(recording.total)
    assert shares["step"] > 0 and recording["epoch"].seconds().sum() <= recording.total


@pytest.mark.backend("tensorflow")
def test_keras(tmp_path):
    from deep500.frameworks.tensorflow import keras_callback
    from deep500.frameworks.tensorflow.runtime import tf

    model = tf.keras.Sequential([tf.keras.layers.Input((4,)), tf.keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x, y, recording = np.ones((40, 4), np.float32), np.ones((40, 1), np.float32), Recording()
    model.fit(x, y, batch_size=10, epochs=3, validation_data=(x, y), verbose=0, callbacks=[keras_callback(recording)])
    check(recording, steps=12, epochs=3, validations=3)


@pytest.mark.backend("pytorch")
@pytest.mark.filterwarnings("ignore")  # theirs, of which there are many
def test_lightning(tmp_path):
    lightning = pytest.importorskip("lightning.pytorch", reason="PyTorch Lightning is not installed")
    import torch

    class Model(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch, _):
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(40, 4)), 10)
    recording = Recording()
    trainer = lightning.Trainer(
        max_epochs=2,
        callbacks=[lightning_callback(recording)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        accelerator="cpu",
        default_root_dir=tmp_path,
    )
    trainer.fit(Model(), loader)
    check(recording, steps=8, epochs=2)


@pytest.mark.backend("pytorch")
@pytest.mark.filterwarnings("ignore")  # theirs, of which there are many
def test_transformers(tmp_path):
    transformers = pytest.importorskip("transformers", reason="Hugging Face's transformers is not installed")
    pytest.importorskip("accelerate", reason="Hugging Face's trainer needs accelerate, which is not installed")
    import torch

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def forward(self, x, labels=None):
            return {"loss": self.layer(x).square().mean()}

    data = [{"x": torch.ones(4), "labels": torch.zeros(1)} for _ in range(40)]
    recording = Recording()
    arguments = transformers.TrainingArguments(
        str(tmp_path),
        per_device_train_batch_size=10,
        num_train_epochs=2,
        report_to=[],
        use_cpu=True,
        disable_tqdm=True,
        save_strategy="no",
    )
    transformers.Trainer(Model(), arguments, train_dataset=data, callbacks=[transformers_callback(recording)]).train()
    check(recording, steps=8, epochs=2)


def test_hooks_without_their_partner_do_no_harm():
    recording = Recording()
    timer = LoopTimer(recording)
    timer.start()
    timer.end("step")
    timer.begin("epoch")
    timer.begin("step")
    timer.end("epoch")
    timer.begin("epoch")
    timer.stop()
    assert recording["epoch"].count == 2 and recording["step"].count == 1


@pytest.mark.parametrize(
    ("make", "module"), [(lightning_callback, "lightning"), (transformers_callback, "transformers")]
)
def test_a_missing_package_is_one_line(make, module, monkeypatch):
    import sys

    for name in (module, "pytorch_lightning", "lightning.pytorch"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingBackend, match=f"pip install {module}"):
        make(Recording())

"""A :class:`Recording` for training loops of other people's trainers, in one line and without changing the loop.

``PyTorch Lightning``: ``Trainer(callbacks=[lightning_callback(recording)])``; ``Hugging Face``:
``Trainer(callbacks=[transformers_callback(recording)])``; Keras: :func:`deep500.frameworks.tensorflow.keras_callback`.
Each opens the recording when training begins, and records the regions ``epoch``, ``step`` and ``validation``.
"""

from __future__ import annotations

from typing import Any

from deep500.errors import MissingBackend
from deep500.measure.recorder import Recording, region

EPOCH, STEP, VALIDATION = "epoch", "step", "validation"


class LoopTimer:
    """Opens and closes a recording and its regions from a trainer's hooks; hooks that come without their partner (a
    validation within an epoch that is cut short, say) are forgotten.

    Example:
        >>> recording = Recording()
        >>> timer = LoopTimer(recording)
        >>> timer.start(); timer.begin("step"); timer.end("step"); timer.stop()
        >>> recording["step"].count
        1
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._open: list[str] = []

    def start(self) -> None:
        """Training begins."""
        self._open.clear()
        self.recording.__enter__()

    def stop(self) -> None:
        """Training has ended; regions that are still open are closed."""
        while self._open:
            self.end(self._open[-1])
        self.recording.__exit__()

    def begin(self, name: str) -> None:
        """Enter a region."""
        self._open.append(name)
        region(name).__enter__()

    def end(self, name: str) -> None:
        """Leave a region, and those within it that are still open."""
        if name not in self._open:
            return
        while self._open:
            inner = self._open.pop()
            region(inner).__exit__()
            if inner == name:
                return


def lightning_callback(recording: Recording) -> Any:
    """A callback for PyTorch Lightning's ``Trainer``; raises MissingBackend where Lightning is not installed."""
    try:
        from lightning.pytorch import Callback
    except ImportError:
        try:
            from pytorch_lightning import Callback
        except ImportError as error:
            raise _missing("lightning") from error
    timer = LoopTimer(recording)

    class LightningRecording(Callback):
        def on_train_start(self, *_: Any) -> None:
            timer.start()

        def on_train_end(self, *_: Any) -> None:
            timer.stop()

        def on_train_epoch_start(self, *_: Any) -> None:
            timer.begin(EPOCH)

        def on_train_epoch_end(self, *_: Any) -> None:
            timer.end(EPOCH)

        def on_train_batch_start(self, *_: Any) -> None:
            timer.begin(STEP)

        def on_train_batch_end(self, *_: Any) -> None:
            timer.end(STEP)

        def on_validation_start(self, trainer: Any, *_: Any) -> None:
            if not trainer.sanity_checking:
                timer.begin(VALIDATION)

        def on_validation_end(self, *_: Any) -> None:
            timer.end(VALIDATION)

    return LightningRecording()


def transformers_callback(recording: Recording) -> Any:
    """A callback for Hugging Face's ``Trainer``; raises MissingBackend where transformers is not installed."""
    try:
        from transformers import TrainerCallback
    except ImportError as error:
        raise _missing("transformers") from error
    timer = LoopTimer(recording)

    class TransformersRecording(TrainerCallback):
        def on_train_begin(self, *_: Any, **__: Any) -> None:
            timer.start()

        def on_train_end(self, *_: Any, **__: Any) -> None:
            timer.stop()

        def on_epoch_begin(self, *_: Any, **__: Any) -> None:
            timer.begin(EPOCH)

        def on_epoch_end(self, *_: Any, **__: Any) -> None:
            timer.end(EPOCH)

        def on_step_begin(self, *_: Any, **__: Any) -> None:
            timer.begin(STEP)

        def on_step_end(self, *_: Any, **__: Any) -> None:
            timer.end(STEP)

    return TransformersRecording()


def _missing(package: str) -> MissingBackend:
    return MissingBackend(f"got no package {package!r}; expected it installed: pip install {package}")

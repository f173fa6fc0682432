"""A recording of the times of ``model.fit``."""

from __future__ import annotations

from typing import Any

from deep500.frameworks.tensorflow.runtime import tf
from deep500.measure.callbacks import EPOCH, STEP, VALIDATION, LoopTimer
from deep500.measure.recorder import Recording


def keras_callback(recording: Recording) -> Any:
    """A callback for ``model.fit(..., callbacks=[keras_callback(recording)])``.

    It opens the recording when training begins, and records the regions ``epoch``, ``step`` and ``validation``.
    """
    timer = LoopTimer(recording)

    class KerasRecording(tf.keras.callbacks.Callback):
        def on_train_begin(self, logs: Any = None) -> None:
            timer.start()

        def on_train_end(self, logs: Any = None) -> None:
            timer.stop()

        def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
            timer.begin(EPOCH)

        def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
            timer.end(EPOCH)

        def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
            timer.begin(STEP)

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            timer.end(STEP)

        def on_test_begin(self, logs: Any = None) -> None:
            timer.begin(VALIDATION)

        def on_test_end(self, logs: Any = None) -> None:
            timer.end(VALIDATION)

    return KerasRecording()

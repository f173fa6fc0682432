"""Level 2: training.

* :mod:`~deep500.training.trainer` is the loop, :mod:`~deep500.training.run` what it shows to listeners,
  :mod:`~deep500.training.statistics` what it measured, :mod:`~deep500.training.check` all of it in one call.
* :mod:`~deep500.training.optimizers`, :mod:`~deep500.training.schedules` and :mod:`~deep500.training.clipping` move the
  parameters.
* :mod:`~deep500.training.data` has data sets, samplers, augmentation and prefetching.
* :mod:`~deep500.training.listeners` watch a run, or end it.

Nothing is imported here: ``deep500`` has the names that recipes use.
"""

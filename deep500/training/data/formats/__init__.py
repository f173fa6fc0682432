"""Data in the formats in which people keep them: one file a format, all of the same shape.

A format is a :class:`~deep500.training.data.formats.records.Rows`, which finds rows and reads values of them, and a
function ``from_<format>`` that gives training and test set to a recipe; `Records` makes samples of rows.
"""

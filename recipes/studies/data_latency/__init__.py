"""Costs of data: storage formats, decoders, threads and processes, beside other frameworks' loaders."""

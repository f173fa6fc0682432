"""The half of execution that all backends share, between a network and its compiled form."""

"""What all backends share between a network and its compiled form."""

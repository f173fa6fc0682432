"""Plugin: see ctc_loss.py."""

"""Parts of the recipe ``checkpointing_profile``: its networks, ways to checkpoint them, measuring, and printing."""

"""How ranks train together: one class per communication scheme."""

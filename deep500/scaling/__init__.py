"""Models and simulations of training on more ranks than there are, held against measurements."""

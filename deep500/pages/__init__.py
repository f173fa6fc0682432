"""The frame, the style sheet and the script of all pages; each kind of page is a template beside them."""

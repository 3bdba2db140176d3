"""One frame of the player, drawn in Python: shapes first, then SVG text or the frames of a GIF."""

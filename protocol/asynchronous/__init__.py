"""Work that front ends share through Redis: callbacks, and what was given up and is queued again."""

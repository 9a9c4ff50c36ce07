"""How a change of an assignment is cut into steps (Megaphone): all at once, a slot at a time, or something between."""

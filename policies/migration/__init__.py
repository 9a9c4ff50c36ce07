"""Migration: divides a change of an assignment into steps (Megaphone): all at once, slot by slot, or in between."""

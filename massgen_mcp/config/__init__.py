"""YAML at the door: validated, trusted or refused, turned into frozen values."""

"""Agents' folders, snapshots of answers, checks."""

"""Where runs live: on disk, or in memory."""

"""What nmt-doctor tells: versions, devices, settings, and whether each device computes what it should."""

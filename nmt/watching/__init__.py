"""The live page of runs: an HTTP server on loopback that reads their logs."""

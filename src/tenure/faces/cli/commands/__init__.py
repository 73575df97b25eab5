"""The commands of the command line: one module for each, named after its noun or verb."""

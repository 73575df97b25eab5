"""The lifecycle of an agent: one file for each verb, with its plan and its declaration."""

"""Safety: epochs, the pause after a restore, findings, conditions of agents, unknown resources."""

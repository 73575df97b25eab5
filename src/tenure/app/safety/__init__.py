"""Safety: epochs, the pause after a restore, findings, standing, unknown resources."""

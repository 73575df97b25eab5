"""What every proof shares: planes inside a seeded run, and a disk that takes its time."""

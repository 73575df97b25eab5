"""Plans: the catalogue of those this process knows, and steps that most are made of."""

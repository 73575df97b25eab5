"""Where it is kept what agents may ask credentials for."""

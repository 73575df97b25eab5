"""How invocations reach the runtimes of agents."""

"""Events: CloudEvents, the feed, subscriptions, acknowledgements, dead letters, reactions."""

"""The outbound sync part of the benchmark: how close the rate comes to the service's limits."""

"""Compare Rowlock with other job queues, in one run on one machine: `python -m benchmarks`."""

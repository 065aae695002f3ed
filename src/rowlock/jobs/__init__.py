"""Jobs: enqueue, policies, locks, outcomes and schedules; `worker` claims, runs and settles them."""

"""The verbs on jobs: enqueue, claim, settle, operate, list, count."""

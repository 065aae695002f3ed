"""The life of a job: enqueue, claim, run, finish or retry or die; rescue and retention around it."""

"""The part of the benchmark about outbound sync: how close it comes to what the other side's limits allow."""

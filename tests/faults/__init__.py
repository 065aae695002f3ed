"""Attacks on real process trees and databases. Each attack keeps its own fsynced journal of events as the oracle."""

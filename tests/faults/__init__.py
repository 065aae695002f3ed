"""Attacks on real process trees and databases; each keeps its own fsynced record of what happened as the oracle."""

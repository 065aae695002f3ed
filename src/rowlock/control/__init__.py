"""The control plane: rules over records, written once for all stores."""

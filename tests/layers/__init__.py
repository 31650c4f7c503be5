"""Layers: stores around stores."""

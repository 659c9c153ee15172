"""The simulation kernel: event queue, network links, event trace, constants."""

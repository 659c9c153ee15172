"""Virtual time: the environment, the network, the event trace, the constants."""

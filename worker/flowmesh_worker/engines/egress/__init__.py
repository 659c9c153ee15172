"""What engines that reach out to the network share."""

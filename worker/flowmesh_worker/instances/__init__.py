"""Engine instances: host processes with their queues and memory, prewarmed and standby hosts."""

"""Pools of workers: what each is made of on the cluster, and how many workers it has."""

"""Host processes of engine instances and standby hosts, and what is measured of them."""

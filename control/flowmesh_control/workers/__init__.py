"""The gateway that workers connect to: sessions, checks of their messages, their logs."""

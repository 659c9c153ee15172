"""Receives uploads into files, and decodes untrusted ones in processes with bounded memory."""

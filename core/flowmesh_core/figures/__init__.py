"""What has been done so far, counted as it happens: the figures behind ``/metrics``.

The run machine counts here; control reads when it is asked, and keeps what must outlive it.
"""

"""The tools of scenarios: a cluster, the installed chart, and measurements of both."""

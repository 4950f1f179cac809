"""Kills, stops and restarts many real processes on one PostgreSQL under load, and checks the results.

`model` defines what runs do, `cluster` the processes and the faults, `clients` the users that submit and follow
runs, `checks` the final checks."""

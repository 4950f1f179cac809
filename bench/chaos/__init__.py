"""Many real processes on one PostgreSQL that are killed, stopped and restarted under load, and what must hold then.

`model` is what runs do, `cluster` the processes and what befalls them, `clients` those who ask for runs and follow
them, `checks` what is looked at in the end."""

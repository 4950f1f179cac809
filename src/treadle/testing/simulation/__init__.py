"""A deterministic simulation: virtual time, seeded scheduling, crashes before and after every journal write.
`python -m treadle.testing.simulation --schedules N` runs N schedules; a failing seed can be replayed."""

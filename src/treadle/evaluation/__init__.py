"""Evaluations: suites of cases, the checks that grade their runs, and what the results say."""
